"""All references of a pipeline in one stage, which keeps those that nothing has changed for."""

import hashlib
import shutil
from pathlib import Path

from trainparity.environment import Environment
from trainparity.launch.runs import reference_that_is_there, run_reference
from trainparity.params import COUNTERPART, Params, reference_name
from trainparity.records import layout
from trainparity.records.base import Record
from trainparity.records.run import Status


class Needed(Record):
    """The reference that a configuration is compared with: the file that its stage depends on."""

    reference: str
    """An entry of `references`."""
    sha256: str
    """Over all files of the reference's state, their names included."""


def train_references(params: Params, environment: Environment, *, runs: Path, data: Path) -> dict[str, Status]:
    """Train the references, then say which configuration needs which; return their status by entry of `references`.

    Those that are there, made from the same code, settings, data and environment, are kept. If that holds for all of
    them, and each configuration is known, nothing but a forced run of the stage (`dvc repro -f`) has a reason to be
    here: then all are trained again.

    A configuration's file in `runs/reference/needed` changes with its own reference alone, so that a new reference
    makes no configuration of another one train again.
    """

    def there_already(name: str) -> Status | None:
        return reference_that_is_there(params, environment, name, runs=runs, data=data)

    there = {name: there_already(name) for name in params.references}
    needed = {run: params.reference_of(run) for run in (*params.configs, COUNTERPART)}
    removed = _remove_others(params, runs)
    if all(there.values()) and not removed and needed == _needed_before(runs):
        there = dict.fromkeys(there)
    found = {
        name: kept or run_reference(params, environment, name, runs=runs, data=data) for name, kept in there.items()
    }
    shutil.rmtree(layout.needed(runs, COUNTERPART).parent, ignore_errors=True)
    digests = {name: _digest(layout.state(runs, reference_name(name))) for name in params.references}
    for run, reference in needed.items():
        Needed(reference=reference, sha256=digests[reference]).write(layout.needed(runs, run))
    return found


def _needed_before(runs: Path) -> dict[str, str]:
    """Return which configuration needed which reference when the stage last ran."""
    return {path.stem: Needed.read(path).reference for path in layout.needed(runs, COUNTERPART).parent.glob("*.json")}


def _remove_others(params: Params, runs: Path) -> bool:
    """Remove what references left that params.yaml no longer has; tell whether there were any."""
    others = [
        path
        for part in ("state", "report")
        for path in (runs / layout.REFERENCE / part).glob("*")
        if path.name not in params.references
    ]
    for path in others:
        shutil.rmtree(path)
    return bool(others)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
