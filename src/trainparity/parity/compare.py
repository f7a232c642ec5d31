"""Judge two recorded runs by their folders: what `trainparity compare` does."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from trainparity.parity.floor import AnalyticFloor, Floor, NoiseFloor
from trainparity.parity.recording.trace import MODELS, Trace, comparable, shared_steps
from trainparity.parity.together import together
from trainparity.parity.verdict import judge_traces
from trainparity.records.base import RecordError
from trainparity.records.run import Status
from trainparity.records.verdict import Verdict


def compare_folders(left: Path, right: Path, twins: Sequence[Path] = (), *, margin: float = 16.0) -> Verdict:
    """Judge the run in `right` against the one in `left`; `left/twins/*` and `twins` measure the noise floor.

    A folder or file that cannot be read gives `cannot judge`, with the reason; a run of the pipeline that did not
    train gives `failed` or `skipped`.
    """
    models = {
        folder: [place.parent.name for place in sorted((folder / MODELS).glob("*/trace.json"))]
        for folder in (left, right)
    }
    if not any(models.values()):
        return _compare(left, right, twins, margin, (str(left), str(right)))
    return _compare_all(left, right, models, twins, margin)


def _compare_all(
    left: Path, right: Path, models: Mapping[Path, Sequence[str]], twins: Sequence[Path], margin: float
) -> Verdict:
    """Judge all models of two runs, each with the optimizer that is its own."""
    both = dict.fromkeys([*models[left], *models[right]])
    found = {}
    if any((folder / "trace.json").exists() for folder in (left, right)):
        found[""] = _compare(left, right, twins, margin, (str(left), str(right)))
    for name in both:
        places = left / MODELS / name, right / MODELS / name
        found[name] = _compare(*places, [twin / MODELS / name for twin in twins], margin, (str(left), str(right)))
    return together(found)


def _compare(left: Path, right: Path, twins: Sequence[Path], margin: float, names: tuple[str, str]) -> Verdict:
    """Judge one model of two runs."""
    try:
        for folder in (left, right):
            if (status := _status(folder)) and status.status != "trained":
                reason = f"{status.run} was {status.outcome}"
                return Verdict(left=names[0], right=names[1], verdict=status.status, reason=reason, margin=margin)
        ours, theirs = load(left), load(right)
        found = [load(folder) for folder in [*_twins_of(left), *twins]]
        lengths = [trace.layout.steps for trace in (ours, theirs)]
        if ours.layout.window == theirs.layout.window:
            ours, theirs, *found = shared_steps(ours, theirs, *found)
        floor = _floor(ours, found)
    except RecordError as error:
        return Verdict(left=names[0], right=names[1], verdict="cannot judge", reason=str(error), margin=margin)
    verdict = judge_traces(ours, theirs, floor, margin, names)
    if verdict.exit_code == 0 and lengths[0] != lengths[1]:
        both = f"{verdict.steps_compared} common steps are {verdict.verdict}, and no more can be said"
        reason = f"steps: {_brief(lengths[0])} and {_brief(lengths[1])}: {both}"
        return verdict.model_copy(update={"verdict": "cannot judge", "weights": None, "reason": reason})
    return verdict


def _brief(steps: Sequence[int]) -> str:
    return f"{len(steps)} traced to step {steps[-1]}"


def _status(folder: Path) -> Status | None:
    """Return what became of a run of the pipeline; None for a run that a Recorder recorded."""
    path = folder / "status.json"
    return Status.read(path) if path.exists() else None


def load(folder: Path) -> Trace:
    """Read the trace in a folder that a Recorder wrote, or in the state folder of a run of the pipeline.

    Raises:
        RecordError: there is none, or it is damaged.
    """
    if (folder / "trace.json").exists():
        return Trace.load(folder)
    what = "no such folder" if not folder.exists() else "holds no trace.json: the run was not recorded, or did not end"
    raise RecordError(f"{folder}: {what}")


def _twins_of(folder: Path) -> list[Path]:
    """Return the folders of the twins that a run has beside it, finished ones."""
    return sorted(path.parent for path in (folder / "twins").glob("*/trace.json"))


def _floor(reference: Trace, twins: Sequence[Trace]) -> Floor:
    for twin in twins:
        if mismatch := comparable(reference.layout, twin.layout):
            raise RecordError(f"a twin is of another run: {mismatch}")
        if not twin.layout.twin:
            raise RecordError("a run given as floor is no twin; record it with TRAINPARITY_TWIN=1 (or 2, 3, ...)")
    return NoiseFloor(reference, twins) if twins else AnalyticFloor(reference)
