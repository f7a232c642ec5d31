"""The folder of a recorded run: written whole under another name, and then put in the place of an earlier one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainparity.records.base import Record, RecordError
from trainparity.running.errors import RunError
from trainparity.scratch import scratch

_NAME = "run.json"
_UNFINISHED = ".unfinished-"
_RUN, _OLD = "run", "old"


class RunRecord(Record):
    """What `trainparity run` recorded; its presence says that the folder is ours to replace."""

    command: str
    steps: int
    """Optimizer steps that were recorded."""
    stopped: bool
    """Whether the recording stopped the script, which had not ended by itself."""
    exit_code: int
    """The command's own; 0 if it was stopped."""
    twins: int
    model: str
    optimizer: str
    beside: list[str]
    """Steps, models and optimizers that were recorded beside the first."""
    not_recorded: list[str]
    """Optimizers that made steps which the trace does not hold."""

    def keep(self, folder: Path) -> None:
        """Write it into the run's folder, as the last file."""
        self.write(folder / _NAME)


def check_replaceable(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier run of ours."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        RunRecord.read(folder / _NAME)
    except (RecordError, OSError):
        raise RunError(f"{folder} holds something else than a run of `trainparity run`; name another folder") from None


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder`; it takes that place if a run was kept in it, and is removed otherwise.

    What a killed recording left beside it, of whichever run, is removed too.
    """
    check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch(f".{folder.name}{_UNFINISHED}", folder.parent, f".?*{_UNFINISHED}????????", _put_back) as place:
        unfinished = place / _RUN
        unfinished.mkdir()
        yield unfinished
        if (unfinished / _NAME).exists():
            if folder.exists():
                folder.rename(place / _OLD)
            unfinished.rename(folder)


def _put_back(place: Path) -> None:
    """Return an earlier run to its place where a kill or an error came before the new one took it."""
    folder = place.with_name(place.name[1:].rpartition(_UNFINISHED)[0])
    if (place / _OLD).exists() and not folder.exists():
        (place / _OLD).rename(folder)
