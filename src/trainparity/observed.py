"""Which files of the user's own a process reads: what it opens and imports, noted while it runs.

No syntax tree shows all of them: a module's name may be computed, a folder put on `sys.path`, a setting kept in a file.
"""

import os
import sys
import sysconfig
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from trainparity.hashing import hash_of

UNKNOWN = ""
"""Stands for a content that may be another one than was read: the file was changed after this process had begun."""

_OURS = Path(__file__).resolve().parent
_MADE = frozenset({".git", ".dvc", ".trainparity", "__pycache__", "site-packages", "dist-packages"})
"""Folders of what is made or installed."""


class Observed:
    """The files below the working directory, and the modules anywhere, that this process reads from now on.

    What is installed, part of Python or ours is left out, and so is what the process writes itself. Python tells of
    every file that it opens (audit hooks, PEP 578); it does not know of those that a library's own code opens.
    """

    def __init__(self, made: Iterable[Path] = ()) -> None:
        """Begin to note; `made` are files and folders that other stages made, which have dependencies of their own."""
        self._folder, self._began_ns = Path.cwd(), time.time_ns()
        self._left_out = [*_installed(), *map(_absolute, made)]
        self._read: set[Path] = set()
        self._written: set[Path] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            path, _, flags = arguments
            written = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            with suppress(OSError):  # the working directory is gone
                (self._written if written else self._read).add(_absolute(os.fsdecode(path)))

    def files(self) -> dict[str, str]:
        """Return the hash of each file by its path, from the working directory if it lies below."""
        below = {path for path in self._read - self._written if path.is_relative_to(self._folder)}
        named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        modules = {_absolute(file) for file in named if isinstance(file, str)}
        found = sorted(path for path in below | modules if self._counts(path))
        return {self._name(path): self._content(path) for path in found}

    def _counts(self, path: Path) -> bool:
        return (
            path.is_file()
            and not _MADE.intersection(path.parts)
            and not any(path.is_relative_to(folder) for folder in self._left_out)
        )

    def _name(self, path: Path) -> str:
        return (path.relative_to(self._folder) if path.is_relative_to(self._folder) else path).as_posix()

    def _content(self, path: Path) -> str:
        changed_ns = path.stat().st_mtime_ns
        return UNKNOWN if changed_ns > self._began_ns else _hash_of(path, changed_ns)


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  `resolve` would follow a link out of the working directory


@cache
def _hash_of(path: Path, _changed_ns: int) -> str:
    return hash_of(path)


def _installed() -> list[Path]:
    """Return the folders of Python, of what is installed and of ours."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    environment = [sys.prefix] if sys.prefix != sys.base_prefix else []
    return [_OURS, *map(Path, (*python, *environment))]
