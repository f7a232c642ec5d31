"""The folder that a run is recorded into: which one it is, what an earlier run has left there, and what is followed."""

import os
from contextlib import suppress
from pathlib import Path

from trainparity.parity.recording import windows
from trainparity.parity.recording.formats import NumberFormat
from trainparity.parity.recording.idle import IDLE
from trainparity.parity.recording.trace import MODELS, Layout
from trainparity.parity.recording.windows import WINDOWS
from trainparity.records.base import RecordError

TWIN = "TRAINPARITY_TWIN"
"""Environment variable that makes a run a twin: its number, from 1."""


def asked_twin() -> int:
    """Return the twin's number that the environment asks for; 0: none.

    Raises:
        ValueError: it is no number.
    """
    text = os.environ.get(TWIN) or "0"
    if not text.isdecimal():
        raise ValueError(f"the environment variable {TWIN} is {text!r}; it must be a twin's number: 1, 2, 3")
    return int(text)


def of_run(folder: str | Path) -> Path:
    """Return an absolute folder, as loops change their working directory.

    Raises:
        TypeError: it is no path.
        ValueError: it is a file.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"the folder is a {type(folder).__name__}; give a path: record(model, optimizer, folder)")
    if not str(folder):
        raise ValueError("the folder has no name; give a path: record(model, optimizer, folder)")
    place = Path(folder).absolute()
    if (file := next((one for one in (place, *place.parents) if one.is_file()), None)) is not None:
        raise ValueError(f"{file} is a file; give a folder to record into")
    return place


def of_model(folder: Path, name: str) -> Path:
    """Return the folder of one of a run's models.

    Raises:
        ValueError: its name is no file name.
    """
    if not name or name in (".", "..") or Path(name).name != name:
        raise ValueError(f"name is {name!r}; it must be a file name")
    return folder / MODELS / name


def check_followed(folder: Path, every: int) -> None:
    """Check that a run can be followed that is recorded there.

    Raises:
        RecordError: there is none, its windows are others, or their states are gone.
    """
    if not (folder / "trace.json").exists():
        raise RecordError(f"{folder}: holds no trace.json: record the reference with every={every} before")
    layout = Layout.read(folder / "trace.json")
    if layout.window != every:
        raise RecordError(f"{folder}: recorded with every={layout.window}, it can't be followed with every={every}")
    windows.check(folder / WINDOWS, every, layout.made)


def format_of_reference(folder: Path) -> NumberFormat | None:
    """Return the format that a recorded reference computes in, where a twin could not know it in time."""
    with suppress(RecordError):
        layout = Layout.read(folder / "trace.json")
        return NumberFormat(layout.precision, layout.unit_roundoff) if layout.rounds_unseen else None
    return None


def make(folder: Path) -> None:
    """Make the folder that a run is recorded into: that it can't be written to is told before the training.

    Raises:
        RecordError: it can't.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder}: can't be recorded into: {error.strerror or error}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise RecordError(f"{folder}: can't be recorded into: it is not yours to write to")


def recorded_since(begun: float, folder: Path) -> bool:
    """Tell whether a run has recorded there that began later, as an older one is stopped only now."""
    with suppress(RecordError):
        return Layout.read(folder / "trace.json").begun > begun
    return False


def remove_earlier(folder: Path) -> None:
    """Remove an earlier run's trace, its curve, its states and the traces of its twins, which measured its floor."""
    if (folder / "trace.json").exists():
        for twin in folder.glob("twins/*/trace.json"):
            twin.unlink()
    for name in ("trace.json", "curve.csv", IDLE):
        (folder / name).unlink(missing_ok=True)
    windows.remove(folder / WINDOWS)
