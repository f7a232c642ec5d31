"""What a stage's processes have read besides what their imports show, and what of it was edited since.

A run's record (`records/files_read.py`) is there only after it: were its files part of the plan at once, the plan would
be another one after the first run, and all would run again. So a file is part of a plan from when its content is
another one than when it was first read. What was first read is kept in `.trainparity/read`, one file a stage.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trainparity.hashing import MISSING
from trainparity.observed import UNKNOWN
from trainparity.pipeline.contents import contents_of
from trainparity.records import layout
from trainparity.records.base import RecordError
from trainparity.records.files_read import NAME, FilesRead

_FIRST = Path(".trainparity/read")


def learn(stage: str, before: Iterable[str], runs: Path = Path("runs")) -> None:
    """Take what a stage's runs have read for the first time from their records.

    Args:
        stage: As its plan is named.
        before: Files that are part of the plan it last ran with: what was first read of them may be lost.
        runs: Where runs leave their reports.
    """
    keep(stage, dict.fromkeys(before, UNKNOWN))
    for record in _records(stage, runs):
        keep(stage, _read(record))


def keep(stage: str, files: Mapping[str, str]) -> None:
    """Keep the hash of each file that a stage has read, unless there is one of an earlier time."""
    path = _FIRST / f"{stage}.json"
    first = _read(path)
    if known := files.keys() - first.keys():
        FilesRead(files=first | {name: files[name] for name in sorted(known)}).write(path)


def edited(stage: str) -> dict[str, str]:
    """Return the hash of each file that a stage has read and that is another one than when it first did."""
    first = _read(_FIRST / f"{stage}.json")
    now = contents_of([Path(name) for name in first])
    found = {name: now.get(Path(name), MISSING) for name in sorted(first)}
    return {name: content for name, content in found.items() if content != first[name]}


def _records(stage: str, runs: Path) -> Iterator[Path]:
    """Yield the records of a stage's runs."""
    folders = {
        "reference": runs / layout.REFERENCE,
        "curves": layout.curves(runs),
        "picture": layout.picture(runs),
        "known-answer": layout.known_answer(runs),
    }
    folder = folders.get(stage, layout.report(runs, stage.removeprefix("train/")))
    yield from sorted(folder.glob(f"**/{NAME}"))


def _read(path: Path) -> dict[str, str]:
    try:
        return FilesRead.read(path).files
    except RecordError:  # not there, or damaged
        return {}
