"""What stands for the content of a file wherever files are compared with what they were."""

import hashlib
from pathlib import Path

MISSING = "missing"
"""Stands for the content of what is not there, which may be meant: what comes later is a change."""


def hash_of(path: Path) -> str:
    """Return the first 16 digits of a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
