"""The states that a run keeps where its windows start, for the runs that follow it."""

import shutil
from pathlib import Path

from trainparity.records.base import RecordError

WINDOWS = "windows"
"""Their folder, in that of the run."""


def of_step(folder: Path, step: int) -> Path:
    """Return the folder, among those of all states, of the one that a step starts from."""
    return folder / f"step-{step:06d}"


def is_kept(folder: Path, step: int) -> bool:
    """Tell whether a state is there; a run that goes on beyond the one that it follows finds none.

    Raises:
        RecordError: states of later windows are there and this one is not.
    """
    state = of_step(folder, step)
    if state.is_dir():
        return True
    if any(other.name > state.name for other in folder.glob("step-*")):
        raise RecordError(f"{state}: no such folder, though later windows of the run were kept")
    return False


def check(folder: Path, every: int, made: int) -> None:
    """Check that the states of a run are there that made so many steps, in windows of so many.

    Raises:
        RecordError: names one that is not.
    """
    for step in range(every, made, every):
        if not (state := of_step(folder, step)).is_dir():
            raise RecordError(f"{state}: no such folder; copy it with the trace, or record the reference again")


def remove(folder: Path) -> None:
    """Remove all that an earlier run has kept."""
    for state in folder.glob("step-*"):
        if state.is_dir() and not state.is_symlink():
            shutil.rmtree(state)
        else:
            state.unlink()
