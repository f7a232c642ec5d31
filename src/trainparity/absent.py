"""What is said of a file that isn't there."""

from contextlib import suppress
from pathlib import Path


def no_such_file(path: Path, made_by: str = "") -> str:
    """Say that a file is missing, and of a project that one is inside of, where it begins.

    Args:
        path: As asked for; relative to the current folder, if at all.
        made_by: What makes that file, if none is in a folder above.
    """
    with suppress(OSError):  # the current folder is gone, or one above it closed
        if not path.is_absolute():
            above = next((folder for folder in Path.cwd().parents if (folder / path).is_file()), None)
            if above:
                return f"{path}: not in this folder, but in {above}: go there first"
    return f"{path}: no such file" + (f"; {made_by}" if made_by else "")
