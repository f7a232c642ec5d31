"""The folder of a recorded run: written whole under another name, and then put in the place of an earlier one.

What is not ours in it is kept.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from glob import escape
from pathlib import Path

from trainparity.records.base import RecordError
from trainparity.records.files import is_free, write_text
from trainparity.records.recorded import NAME, RunRecord
from trainparity.running.errors import RunError
from trainparity.scratch import has_owner, remove_left, scratch

_HOME = Path(".trainparity/ab")
"""Where pairs are kept that the user names no folder for."""

_UNFINISHED = ".unfinished-"
_OTHERS = f".?*{_UNFINISHED}????????"
_RUN, _OLD = "run", "old"


def check_replaceable(folder: Path) -> None:
    """Refuse a folder that holds something and no earlier run of ours."""
    if not is_free(folder) and not holds_run(folder):
        raise RunError(f"{folder} holds something else than a run of `trainparity run`; name another folder")


def holds_run(folder: Path) -> bool:
    """Tell whether there is an earlier run of ours in a folder."""
    return bool(_of_earlier_run(folder))


def _of_earlier_run(folder: Path) -> set[str]:
    """Return the names of what an earlier run of ours has left in a folder; none where there is no such run."""
    try:
        return set(RunRecord.read(folder / NAME).files)
    except (RecordError, OSError):
        return set()


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder`; it takes that place if a run was kept in it, and is removed otherwise.

    What others put into `folder`, as the recorded script its checkpoints, moves into the new one: an earlier run's own
    files alone go. What a killed recording left beside it, of whichever run, is removed too. A link to a folder stays
    one.

    Raises:
        RunError: the folder can't be made or holds something else, another process records into it, or the script has
            written files there whose names the recording's own have.
    """
    folder = Path(os.path.realpath(folder)) if folder.is_symlink() else folder
    check_replaceable(folder)
    with ExitStack() as stack:
        with _made(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            beside = scratch(f".{folder.name}{_UNFINISHED}", folder.parent, _OTHERS, _put_back)
            place = stack.enter_context(beside)
        rivals = folder.parent.glob(f".{escape(folder.name)}{_UNFINISHED}????????")
        if any(rival != place and has_owner(rival) for rival in rivals):
            raise RunError(f"{folder}: another process records into it; name another folder")
        unfinished = place / _RUN
        unfinished.mkdir()
        yield unfinished
        if (unfinished / NAME).exists():
            _check_names(folder, unfinished)
            if folder.exists():
                folder.rename(place / _OLD)  # from where what is not ours comes back by `_put_back`
            unfinished.rename(folder)


def _check_names(folder: Path, new: Path) -> None:
    """Refuse a folder with files of others whose names those of a new run have: one of both would be lost."""
    others = {path.name for path in folder.iterdir()} - _of_earlier_run(folder) if folder.exists() else set()
    if clashing := sorted(others & {path.name for path in new.iterdir()}):
        raise RunError(
            f"{folder / clashing[0]}: written meanwhile, by the script it seems, and the recording has a file of this "
            "name too; record into another folder"
        )


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Name the user's own folder where the system refuses it, or what lies beside it meanwhile."""
    try:
        yield
    except OSError as error:
        raise RunError(f"the folder {folder} can't be made: {error.strerror}; name another one") from None


def _put_back(place: Path) -> None:
    """Return to a run's folder what is not of an earlier run; all, where a kill or an error came before the new one."""
    folder, old = place.with_name(place.name[1:].rpartition(_UNFINISHED)[0]), place / _OLD
    if old.exists() and not folder.exists():
        old.rename(folder)
    elif old.exists():
        ours = _of_earlier_run(old)
        _move_into(folder, [path for path in old.iterdir() if path.name not in ours])


def _move_into(folder: Path, paths: Iterable[Path]) -> None:
    """Move files and folders into a folder; one that is there is newer, as of a script that goes on, and stays."""
    for path in paths:
        there = folder / path.name
        if not os.path.lexists(there):
            path.rename(there)
        elif path.is_dir() and there.is_dir():
            _move_into(there, path.iterdir())


@contextmanager
def folder_of_pair(named: Path | None) -> Iterator[Path]:
    """Yield a folder for both runs of a pair, which no other process has meanwhile: else it could judge their mixture.

    Args:
        named: What the user calls it; None: a new one, called by the time.

    Raises:
        RunError: it can't be made, or another process has it.
    """
    folder = named or _new()
    with _made(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # of a file system without locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(f"{folder}: another `trainparity ab` writes there; name another folder") from None
        yield folder
    finally:
        if not named:
            with suppress(OSError):  # it holds something
                folder.rmdir()
        os.close(descriptor)


def _remove_left() -> None:
    """Remove what killed processes have left of their pairs."""
    for pair in _HOME.glob("*"):
        if remove_left(pair, _OTHERS, _put_back):
            with suppress(OSError):  # it holds a run
                pair.rmdir()


def _new() -> Path:
    """Make a folder that was not there, and remove what killed processes have left beside it."""
    _remove_left()
    if not (_HOME / ".gitignore").exists():
        write_text(_HOME / ".gitignore", "*\n")  # results are no change of the user's repository
    now = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    for name in (now, *(f"{now}-{number}" for number in range(2, 1000))):
        with suppress(FileExistsError):
            (_HOME / name).mkdir()
            return _HOME / name
    raise RunError(f"{_HOME} holds too many folders of this second; give --folder")
