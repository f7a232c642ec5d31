"""What stands for the content of a file wherever files are compared with what they were."""

import hashlib
from pathlib import Path


def hash_of(path: Path) -> str:
    """Return the first 16 digits of a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
