"""A run that is given twice, as its folder or as a copy of it: it would be the same training as itself."""

from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from trainparity.parity.recording.trace import MODELS, Layout
from trainparity.records.base import RecordError


def given_twice(left: Path, right: Path) -> str | None:
    """Say why two folders are of one run; None where they are not, or where that was not noted."""
    if left.samefile(right):
        return f"{left} and {right} are one folder: a run is the same training as itself; name the other"
    if moments(left) & moments(right):
        return (
            f"{right} is a copy of {left}, or both are of one: their recording began at the same microsecond; a run is "
            "the same training as itself; record the other"
        )
    return None


def moments(folder: Path) -> Set[float]:
    """Return when the recording of each model in a folder began, in seconds since 1970; none of the pipeline's runs."""
    found = set[float]()
    for path in (folder / "trace.json", *(folder / MODELS).glob("*/trace.json")):
        with suppress(RecordError):
            found.add(Layout.read(path).begun)
    return found - {0.0}
