"""What stands for the content of a file wherever files are compared with what they were."""

import hashlib
from pathlib import Path

MISSING = "missing"
"""Stands for the content of what is not there, which may be meant: what comes later is a change."""

FOLDER = "/"
"""Ends the name of a folder whose content is the names in it, as a program sees it that lists what there is."""


def hash_of(path: Path) -> str:
    """Return the first 16 digits of a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def names_in(folder: Path) -> str:
    """Return the first 16 digits of the SHA-256 of the names in a folder, but for hidden ones and compiled modules."""
    if not folder.is_dir():
        return MISSING
    names = (one.name for one in folder.iterdir() if not one.name.startswith(".") and one.name != "__pycache__")
    return hashlib.sha256("\0".join(sorted(names)).encode(errors="surrogateescape")).hexdigest()[:16]
