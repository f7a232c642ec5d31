"""Which files of the user's own a process reads: what it opens and imports, noted while it runs.

No syntax tree shows all of them: a module's name may be computed, a folder put on `sys.path`, a setting kept in a file.
"""

import importlib.util
import os
import stat
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from trainparity.hashing import FOLDER, MISSING, hash_of, names_in

UNKNOWN = ""
"""Stands for a content that may be another one than was read: the file was changed after this process had read it."""

_OURS = Path(__file__).resolve().parent
_INSTALLED = frozenset({"site-packages", "dist-packages", "__pycache__"})
_MADE = _INSTALLED | {".git", ".dvc", ".trainparity"}
"""Folders of what is made or installed, wherever they lie below the working directory."""

_MADE_BY = {
    "os.rename": (0, 1), "os.link": (1,), "os.symlink": (1,), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,)
}  # fmt: skip
"""Events by which a file or folder comes or goes, and which of their arguments name it."""

_OUTPUTS = ("runs", "reports")
"""Folders of the project whose names are other ones after each stage."""

_LISTS = {"os.listdir", "os.scandir"}

_State = tuple[int, ...]
"""What a file was when it was looked at; empty: it was not there."""


class Observed:
    """What this process reads from now on: files below the working directory, the user's modules, data beside these.

    A file that is asked for and not there counts as `MISSING`: one that comes later changes the program. What is
    installed, part of Python or ours is left out, and so is what the process writes itself. Python tells of every file
    that it opens (audit hooks, PEP 578); it does not know of those that a library's own code opens.
    """

    def __init__(self, made: Iterable[Path] = ()) -> None:
        """Begin to note; `made` are files and folders that other stages made, which have dependencies of their own."""
        self._folder, self._began_ns = Path.cwd(), time.time_ns()
        self._left_out = [*_installed(self._folder), *map(_absolute, made)]
        self._read: dict[Path, _State] = {}
        self._updated: set[Path] = set()
        self._written: set[Path] = set()
        self._filled: set[Path] = set()  # folders in which it makes or removes something
        self._listed: dict[Path, str] = {}
        self._searched = _Searched(self._is_own)
        sys.addaudithook(self._note)
        sys.meta_path.append(self._searched)  # the last one: it is asked for what no other finds

    def _note(
        self, event: str, arguments: tuple[Any, ...], *, finalizing: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        if finalizing():  # Python ends: what this module imported may be gone
            return
        with suppress(OSError, ValueError):  # the working directory is gone; a name that no file can have
            if event == "open" and isinstance(arguments[0], str | bytes):
                path, mode, flags = arguments
                self._opened(_absolute(os.fsdecode(path)), flags, by_number=mode is None)
            elif event in _LISTS and isinstance(arguments[0], str | bytes | os.PathLike) and not _asked_by_python():
                self._lists(_absolute(os.fsdecode(arguments[0])))
            elif event in _MADE_BY:
                names = [arguments[index] for index in _MADE_BY[event]]
                moved = {_absolute(os.fsdecode(name)) for name in names if not isinstance(name, int)}
                self._written |= moved
                self._filled |= {path.parent for path in moved}

    def _opened(self, path: Path, flags: int, *, by_number: bool) -> None:
        """Note a file that is about to be opened; `by_number`: its name may be one in another folder (`dir_fd`)."""
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        path = path if writes else _source_of(path)
        state = self._read[path] if path in self._read else _state(path)
        if writes:
            if not state or not flags & os.O_RDWR or flags & os.O_TRUNC:
                self._written.add(path)
                if not state:
                    self._filled.add(path.parent)
                return
            self._updated.add(path)  # as an array that is mapped
        if state or (state is not None and not by_number):
            self._read[path] = state

    def _lists(self, folder: Path) -> None:
        """Note the names in a folder of the project that is about to be listed; in its own, outputs come and go."""
        outputs = any(folder.is_relative_to(self._folder / name) for name in _OUTPUTS)
        below = folder != self._folder and folder.is_relative_to(self._folder) and not outputs
        if below and folder not in self._listed and self._is_own(folder):
            self._listed[folder] = ""  # before it is listed here, which is such an event, too
            self._listed[folder] = names_in(folder)

    def files(self) -> dict[str, str]:
        """Return the hash of each file by its path, from the working directory if it lies below.

        Of a folder that was listed, by its path and `FOLDER`, it is that of the names in it.
        """
        modules = dict(_modules())
        packages = {path.parent for path, is_package in modules.items() if is_package and self._is_own(path)}
        beside = {path.parent for path in modules if self._is_own(path)}
        opened = {
            path
            for path in list(self._read)  # other threads may open files meanwhile
            if path.is_relative_to(self._folder) or path.parent in beside or not packages.isdisjoint(path.parents)
        }
        own = {path for path in (opened | modules.keys()) - self._written if self._is_own(path)}
        found = {path: content for path in own if (content := self._content(path)) is not None}
        found |= {path: MISSING for path in self._searched.files() if path.is_relative_to(self._folder)}
        listed = [path for path in list(self._listed) if path not in self._filled]
        named = {self._name(path): digest for path, digest in found.items()}
        return dict(sorted((named | {self._name(path) + FOLDER: self._listed[path] for path in listed}).items()))

    def _is_own(self, path: Path) -> bool:
        if any(path.is_relative_to(folder) for folder in self._left_out):
            return False
        if path.is_relative_to(self._folder):
            return _MADE.isdisjoint(path.relative_to(self._folder).parts)
        return _INSTALLED.isdisjoint(path.parts)

    def _name(self, path: Path) -> str:
        return (path.relative_to(self._folder) if path.is_relative_to(self._folder) else path).as_posix()

    def _content(self, path: Path) -> str | None:
        """Return the hash of what was read; None if this is no file, or one that the process made itself."""
        first, now = self._read.get(path), _state(path)
        if now is None or (now != first and path in self._updated):
            return None
        if first is None:  # a module that was imported before
            return None if not now else UNKNOWN if _changed_ns(now) > self._began_ns else _hash_of(path, now)
        if now == first:
            return _hash_of(path, now) if now else MISSING
        return None if first and not now and _changed_ns(first) > self._began_ns else UNKNOWN


class _Searched:
    """A finder that finds no module, but notes where those that the user's code asks for were searched."""

    def __init__(self, is_own: Callable[[Path], bool]) -> None:
        self._is_own, self._folders = is_own, dict[str, list[str]]()

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: object = None) -> None:
        frame = sys._getframe(1)
        while frame.f_back and str(frame.f_globals.get("__name__")).startswith("importlib"):
            frame = frame.f_back
        asking = frame.f_code.co_filename
        if not asking.startswith("<") and self._is_own(_absolute(asking)):
            self._folders[name] = list(sys.path if path is None else path)

    def files(self) -> Iterator[Path]:
        """Yield where a module could come to lie that was not found."""
        for name, folders in list(self._folders.items()):
            last = name.rpartition(".")[2]
            places = [_absolute(folder) / file for folder in folders for file in (f"{last}.py", f"{last}/__init__.py")]
            yield from (place for place in places if name not in sys.modules and self._is_own(place))


def _modules() -> Iterator[tuple[Path, bool]]:
    """Yield the file of each module that is imported, and whether that is a package."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield _absolute(file), hasattr(module, "__path__")


def _asked_by_python() -> bool:
    """Tell whether Python itself lists a folder, to look for modules in it."""
    return sys._getframe(2).f_code.co_filename.startswith("<frozen importlib")


def _source_of(path: Path) -> Path:
    """Return the source of a compiled module, which Python opens in its place; of any other file itself."""
    if path.suffix == ".pyc":
        with suppress(ValueError, NotImplementedError):
            return Path(importlib.util.source_from_cache(str(path)))
    return path


def _state(path: Path) -> _State | None:
    """Return what tells whether a file was changed or replaced; empty if it is not there, None if it is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


def _changed_ns(state: _State) -> int:
    """Return when a file was last changed or put where it is."""
    return state[0]


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  `resolve` would follow a link out of the working directory


@cache
def _hash_of(path: Path, _as_it_is: _State) -> str:
    return hash_of(path)


def _installed(folder: Path) -> list[Path]:
    """Return the folders of Python, of what is installed and of ours; the environment may itself be around `folder`."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    environment = sys.prefix != sys.base_prefix and not folder.is_relative_to(sys.prefix)
    return [_OURS, *map(Path, (*python, *([sys.prefix] if environment else [])))]
