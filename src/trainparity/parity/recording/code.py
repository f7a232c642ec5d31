"""The code that a run is made by: the files that it has loaded and that nobody has installed."""

import hashlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainparity.installed import is_installed, is_of_python

_LARGEST = 2**20
"""Bytes of a file that people write; a larger one is made by a program."""


def loaded() -> dict[str, str]:
    """Return 16 digits of the SHA-256 of each file of code, by its path from the script's folder.

    Without blank lines and lines that are a comment. Files of installed packages and of Python are left out, and
    trainparity itself: versions stand for them.
    """
    main = _file_of(sys.modules.get("__main__"))
    start = Path(main).absolute().parent if main else Path.cwd()
    files = {_file_of(module) for name, module in [*sys.modules.items()] if not _is_own(name)} - {""}
    found = {}
    for file in sorted(filter(_is_written_here, files)):
        if content := _content(Path(file)):
            found[os.path.relpath(file, start)] = content
    return found


def edited(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """Return the files that two runs have both loaded, with other code in them."""
    return sorted(file for file in left.keys() & right.keys() if left[file] != right[file])


def _file_of(module: object) -> str:
    """Return the file of a module; empty where none is known, or another package's stand-in for one raises."""
    try:
        file = getattr(module, "__file__", None)
    except Exception:
        return ""
    return file if isinstance(file, str) and "\0" not in file else ""


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "trainparity"


@cache  # of thousands of files, which every recorder of a process looks at
def _is_written_here(file: str) -> bool:
    path = os.path.abspath(file)  # noqa: PTH100 - a Path of each takes 0.2 s
    return path.endswith(".py") and not is_installed(path) and not is_of_python(path)


def _content(file: Path) -> str:
    """Return what stands for a file's lines of code; empty where they can't be read."""
    try:
        text = file.read_bytes() if file.stat().st_size <= _LARGEST else b""
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.splitlines()]
    code = [line for line in lines if line and not line.lstrip().startswith(b"#")]
    return hashlib.sha256(b"\n".join(code)).hexdigest()[:16] if code else ""
