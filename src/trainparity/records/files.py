"""How files and folders are written: whole or not at all, beside what is there until then."""

import errno
import glob
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal


def write_text(path: Path, text: str) -> None:
    r"""Write a text file whole or not at all; into a device or a pipe, such as /dev/null, which stays what it is.

    What is no text, as a file name's byte that is no UTF-8, is written as `\udcff`.
    """
    if is_stream(path):
        _write_into(path, text)
        return
    with replacing(path.resolve()) as unfinished:  # of a link the file that it leads to
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


def _write_into(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        error.filename = error.filename or str(path)  # an open file has no name, as when a device is full
        raise


def is_stream(path: Path) -> bool:
    """Tell whether a path is a device, a pipe or a name of an open file: root could put a file in its place."""
    led = path.absolute()
    for _ in range(_MOST_LINKS):
        if led.parent in _NAMES_OF_STREAMS:
            return True
        if not led.is_symlink():
            break
        led = led.parent / led.readlink()
    return path.exists() and not path.is_file() and not path.is_dir()


_NAMES_OF_STREAMS = {Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")}

_MOST_LINKS = 8
"""Links that are followed to one another; further ones lead to no stream."""


def is_free(path: Path) -> bool:
    """Tell whether nothing lies at a path that replacing it would remove: nothing at all, or an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a free path beside `path` to write a file or a folder at; without an exception it then becomes `path`.

    An existing file is replaced in one step. An existing folder is renamed first, as no system call replaces it, and
    removed last; a link to a folder leads to the new one afterwards. Whose it is, is the caller's to know.
    """
    path, unfinished = _beside(path)
    try:
        yield unfinished
        _replace(path, unfinished)
    except OSError as error:
        if error.errno is not None:  # nobody knows the free path, and what can't be written names none
            error.filename = str(error.filename or path).replace(str(unfinished), str(path))
            if error.filename == str(error.filename2):
                del error.filename2
        raise
    finally:
        _remove(unfinished)


def _beside(path: Path) -> tuple[Path, Path]:
    """Return where a path really leads, and a free path beside that, on the same file system."""
    path = path.resolve() if path.is_dir() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_what_killed_writers_left(path)
    unfinished = _own(path, "tmp")
    _remove(unfinished)  # of a process that had this one's number
    return path, unfinished


def _own(path: Path, kind: Literal["tmp", "old"]) -> Path:
    """Return a name beside `path` that is this thread's alone: others may write the same at the same time."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.{kind}")


def _remove_what_killed_writers_left(path: Path) -> None:
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        named = re.fullmatch(r"\.(\d+)-\d+\.(tmp|old)", left.name[1 + len(path.name) :])
        if not named or _lives(int(named[1])):
            continue
        if named[2] == "old" and not path.exists():  # killed between two renames
            left.rename(path)
        else:
            _remove(left)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _replace(path: Path, new: Path) -> None:
    if not path.is_dir():
        new.replace(path)
        return
    old = _own(path, "old")
    _remove(old)
    path.rename(old)
    try:
        new.rename(path)
    except BaseException:  # also Ctrl-C
        if not path.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def move_folder(source: Path, target: Path) -> None:
    """Move a folder, also to another file system; a folder at `target` is replaced when the new one is whole there.

    Raises:
        OSError: the file system refuses; both folders are as they were.
    """
    target, unfinished = _beside(target)
    try:
        shutil.move(source, unfinished)
    except OSError as error:
        _remove(unfinished)
        number = errno.EIO if isinstance(error, shutil.Error) else error.errno  # that one names every file
        raise OSError(number, f"{source} can't be moved there: {error}", str(target)) from None
    try:
        _replace(target, unfinished)
    except BaseException:
        if unfinished.exists():
            shutil.move(unfinished, source)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
