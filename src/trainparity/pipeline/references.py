"""All references of a pipeline in one stage, which keeps those that nothing has changed for."""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from trainparity.data.manifest import Manifest
from trainparity.environment import Environment
from trainparity.launch.runs import reference_that_is_there, run_reference
from trainparity.params import COUNTERPART, Params, reference_name
from trainparity.pipeline.places import KEPT
from trainparity.records import layout
from trainparity.records.base import Record, RecordError
from trainparity.records.files import replacing
from trainparity.records.run import Status


class Needed(Record):
    """The reference that a configuration is compared with: the file that its stage depends on."""

    reference: str
    """An entry of `references`."""
    sha256: str
    """Over all files of the reference's state, their names included."""


class Kept(Record):
    """What a reference's kept state was when it was put there: a damaged disk or a hand may have changed it."""

    sha256: str
    """As in `Needed`."""


def train_references(params: Params, environment: Environment, *, runs: Path, data: Path) -> dict[str, Status]:
    """Train the references, then say which configuration needs which; return their status by entry of `references`.

    What becomes of each is printed.

    DVC removes a stage's outputs before it runs, so trained references are kept beside them as well. One that was made
    from the same code, settings, data and environment is taken from there. If that holds for all of them, and each
    configuration is known, nothing but a forced run of the stage (`dvc repro -f`) has a reason to be here: then all
    are trained again.

    A configuration's file in `runs/reference/needed` changes with its own reference alone, so that a new reference
    makes no configuration of another one train again.

    Raises:
        ParamsError: the settings ask for more samples than the dataset has.
    """
    with suppress(RecordError):  # of a dataset that is damaged the ranks tell
        params.check_samples(Manifest.of(data).samples, Path("params.yaml"))
    kept = KEPT / runs if not runs.is_absolute() else runs / ".kept"
    there = {
        name: reference_that_is_there(params, environment, name, runs=kept, data=data) for name in params.references
    }
    digests = {name: _whole(name, kept) if status else "" for name, status in there.items()}
    there = {name: status if digests[name] else None for name, status in there.items()}
    needed = {run: params.reference_of(run) for run in (*params.configs, COUNTERPART)}
    removed = _remove_others(params, kept)
    if all(there.values()) and not removed and needed == _needed_before(kept):
        there = dict.fromkeys(there)
    shutil.rmtree(runs / layout.REFERENCE, ignore_errors=True)
    found = {}
    for name, status in there.items():
        if status:
            _copy(name, kept, runs)
            found[name] = status
            print(f"reference {name}: kept")
        else:
            found[name] = run_reference(params, environment, name, runs=runs, data=data)
            print(f"reference {name}: {found[name].outcome}")
            digests[name] = _digest(layout.state(runs, reference_name(name)))
            if found[name].status == "trained":
                _keep(name, runs, kept, digests[name])
    for place in (kept, runs):
        shutil.rmtree(layout.needed(place, COUNTERPART).parent, ignore_errors=True)
        for run, reference in needed.items():
            Needed(reference=reference, sha256=digests[reference]).write(layout.needed(place, run))
    return found


def _keep(reference: str, runs: Path, kept: Path, digest: str) -> None:
    """Put a trained reference, whose state has a digest, to the kept ones, and say last what it was."""
    mark = _mark(reference, kept)
    mark.unlink(missing_ok=True)
    _copy(reference, runs, kept)
    Kept(sha256=digest).write(mark)


def _whole(reference: str, kept: Path) -> str:
    """Return the digest of a kept reference's state; empty if it is not what was put there: that would pass as good."""
    digest = _digest(layout.state(kept, reference_name(reference)))
    try:
        return digest if Kept.read(_mark(reference, kept)).sha256 == digest else ""
    except RecordError:  # there is none
        return ""


def _mark(reference: str, kept: Path) -> Path:
    return kept / layout.REFERENCE / "kept" / f"{reference}.json"


def _copy(reference: str, here: Path, there: Path) -> None:
    """Replace a reference's folders in `there` by those in `here`, as hard links where the file system has them.

    The report, which says what the reference was made from, goes first and comes last, whole: a copy that is cut short
    is none.
    """
    name = reference_name(reference)
    shutil.rmtree(layout.report(there, name), ignore_errors=True)
    for part in (layout.state, layout.report):
        with replacing(part(there, name)) as unfinished:
            shutil.copytree(part(here, name), unfinished, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


def _needed_before(kept: Path) -> dict[str, str]:
    """Return which configuration needed which reference when the stage last ran."""
    try:
        return {
            path.stem: Needed.read(path).reference for path in layout.needed(kept, COUNTERPART).parent.glob("*.json")
        }
    except RecordError:  # damaged, as after a crash
        return {}


def _remove_others(params: Params, kept: Path) -> bool:
    """Remove what is kept of references that params.yaml no longer has; tell whether there were any."""
    others = [
        path
        for part in ("state", "report")
        for path in (kept / layout.REFERENCE / part).glob("*")
        if path.name not in params.references
    ]
    for path in others:
        shutil.rmtree(path)
        _mark(path.name, kept).unlink(missing_ok=True)
    return bool(others)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
