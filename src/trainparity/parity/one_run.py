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
    theirs = recordings(right)
    if recordings(left) & theirs:
        return (
            f"{right} is a copy of {left}, or both are of one: they are one recording; a run is the same training as "
            "itself; record the other"
        )
    twins = [twin for twin in (left / "twins").glob("*") if recordings(twin) & theirs]
    return f"{right} is a twin of {left}, which the noise floor is measured by; record the other" if twins else None


def recordings(folder: Path) -> Set[str]:
    """Return what names the recording of each model in a folder; none of the pipeline's runs."""
    found = set[str]()
    for path in (folder / "trace.json", *(folder / MODELS).glob("*/trace.json")):
        with suppress(RecordError):
            layout = Layout.read(path)
            found.add(layout.recording or (str(layout.begun) if layout.begun else ""))
    return found - {""}
