"""The folder of a recorded run: written whole under another name, and then put in the place of an earlier one."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainparity.records.base import Record, RecordError
from trainparity.running.errors import RunError

_NAME = "run.json"


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
    """Yield an empty folder beside `folder`; it takes that place if a run was kept in it, and is removed otherwise."""
    check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield unfinished
        if (unfinished / _NAME).exists():
            unfinished.chmod(0o755)  # mkdtemp's is for the owner alone
            old = unfinished.with_name(f"{unfinished.name}-old")
            if folder.exists():
                folder.rename(old)
            unfinished.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
