"""What a stage's processes have read besides what their imports show: it completes the plan that the stage ran with.

Which files these are is known when the stage has run. It writes them into its plan then, before DVC notes that as what
the results were made from: so each result is kept with all contents that made it, and is never taken for another's.

The next `probe` has to make the same plan at once. So the files are noted by the rest of the plan, beside DVC's own
notes of what it ran, which lie and travel where the results do. Where the note is lost, the plan is another one: the
stage runs again.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from trainparity.hashing import FOLDER, MISSING, names_in
from trainparity.observed import UNKNOWN
from trainparity.pipeline import cache
from trainparity.pipeline.contents import contents_of
from trainparity.pipeline.plan import Plan
from trainparity.records import layout
from trainparity.records.base import RecordError
from trainparity.records.files import write_text
from trainparity.records.files_read import NAME, FilesRead

RECORDS = Path(".trainparity/records")
"""What the stages of no run have read, each in a folder of its name."""


def remembered(stage: str, digest: str) -> dict[str, str]:
    """Return the hash, as it is now, of each file that a stage is known to read besides the rest of its plan.

    Args:
        stage: As its plan is named.
        digest: The plan's.
    """
    return as_now(_read(_note(stage, digest)))


def as_now(files: Iterable[str]) -> dict[str, str]:
    """Return the hash of each file, or of the names in a folder, as it is now."""
    files = list(files)
    now = contents_of([Path(name) for name in files])
    return {name: _names(name) or now.get(Path(name), MISSING) for name in files}


def _names(name: str) -> str:
    return names_in(Path(name)) if name.endswith(FOLDER) else ""


def complete(stage: str, path: Path, runs: Path = Path("runs")) -> None:
    """Write into a stage's plan what its processes have read, and note it.

    Args:
        stage: As its plan is named.
        path: The plan's file; a stage without one depends on nothing that could be read.
        runs: Where runs leave their reports.
    """
    if not path.exists():
        return
    plan = Plan.read(path).completed(_union(map(_read, _records(stage, runs))))
    if plan.also_read:
        plan.write(path)
        with suppress(OSError):  # as on a full disk, or in a container without this folder: the stage may run again
            FilesRead(files=plan.also_read).write(_note(stage, plan.digest))
            _put_into_cache(plan)


def _note(stage: str, digest: str) -> Path:
    return (cache.notes() or Path(".trainparity/read")) / stage / f"{digest}.json"


def _put_into_cache(plan: Plan) -> None:
    """Keep a plan where DVC has those that `probe` made: it would ask before it replaces the plan's file by those."""
    text = plan.as_json()
    file = cache.file(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest())
    if cache.folder() and not file.exists():
        write_text(file, text)
        file.chmod(0o444)  # as DVC does


def _union(records: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the hash of each file that runs have read; where they have read several contents, nobody knows it."""
    found: dict[str, str] = {}
    for files in records:
        found |= {name: digest if found.get(name, digest) == digest else UNKNOWN for name, digest in files.items()}
    return found


def _records(stage: str, runs: Path) -> Iterator[Path]:
    """Yield the records of a stage's runs."""
    folders = {
        "prepare": RECORDS / "prepare",
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
