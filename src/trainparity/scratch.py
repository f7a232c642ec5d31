"""Folders for what is unfinished or temporary: gone at the end, and with the next start where their owner was killed.

The kernel locks each for as long as the process that made it lives, so one without a lock belongs to nobody.
(flock(2): https://man7.org/linux/man-pages/man2/flock.2.html)
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_RANDOM = "?" * 8
"""What `mkdtemp` puts behind a prefix."""


@contextmanager
def scratch(
    prefix: str = "trainparity-scratch-",  # earlier versions, which lock nothing, name theirs trainparity-...
    parent: Path | None = None,
    others: str | None = None,
    before_removal: Callable[[Path], None] = lambda folder: None,
) -> Iterator[Path]:
    """Yield a new, empty folder for this process alone, which is removed at the end.

    Args:
        prefix: Its name begins with it.
        parent: Where it lies; None: where temporary files do.
        others: Folders of this pattern that killed processes left in `parent` are removed too; None: `prefix` and any.
        before_removal: Called with every folder that is about to be removed, this one or one that was left; where it
            raises, the folder is not.
    """
    place = parent or Path(tempfile.gettempdir())
    remove_left(place, others or f"{prefix}{_RANDOM}", before_removal)
    folder, lock = _make(place, prefix)
    try:
        yield folder
    finally:
        _remove(folder, lock, before_removal)


def remove_left(place: Path, pattern: str, before_removal: Callable[[Path], None] = lambda folder: None) -> list[Path]:
    """Remove the folders of a pattern in a place that killed processes have left there; return them."""
    removed = []
    for left in place.glob(pattern):
        if (lock := _lock(left, wait=False)) is not None:
            _remove(left, lock, before_removal)
            removed.append(left)
    return removed


def has_owner(folder: Path) -> bool:
    """Tell whether another process, which lives, has made a folder; False where the file system has no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _make(place: Path, prefix: str) -> tuple[Path, int | None]:
    """Make a folder and lock it; another process may have removed it in between, as it had no owner yet."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        lock = _lock(folder, wait=True)
        if folder.exists():
            return folder, lock


def _lock(folder: Path, *, wait: bool) -> int | None:
    """Lock a folder; None if its owner lives, it is another user's, or the file system has no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(folder: Path, lock: int | None, before_removal: Callable[[Path], None]) -> None:
    try:
        before_removal(folder)  # what it can't save, by an error, stays
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        if lock is not None:
            os.close(lock)
