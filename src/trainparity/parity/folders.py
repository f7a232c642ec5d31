"""Judge two recorded runs by their folders: what `trainparity compare` does."""

from collections.abc import Sequence
from pathlib import Path

from trainparity.parity.floor import AnalyticFloor, Floor, NoiseFloor
from trainparity.parity.recording.trace import Layout, Trace, comparable
from trainparity.parity.verdict import judge_traces
from trainparity.records.base import RecordError
from trainparity.records.verdict import Comparison, PairResult


def compare_folders(left: Path, right: Path, twins: Sequence[Path] = (), *, margin: float = 16.0) -> Comparison:
    """Judge the run in `right` against the one in `left`, with its twins (`left/twins/*`) and `twins` as the floor.

    A folder or file that can't be read makes it `cannot judge`, with the reason.
    """
    empty = Comparison(left=str(left), right=str(right), verdict="cannot judge", margin=margin)
    try:
        ours, theirs = load(left), load(right)
        found = [load(folder) for folder in [*_twins_of(left), *twins]]
        floor = _floor(ours, found)
    except RecordError as error:
        return empty.model_copy(update={"reason": str(error)})
    if mismatch := comparable(ours.layout, theirs.layout):
        return _tied_otherwise(empty, ours.layout, theirs.layout) or empty.model_copy(update={"reason": mismatch})
    result = judge_traces(
        PairResult(name="pair", left=str(left), right=str(right), verdict="failed"), ours, theirs, floor, margin
    )
    if result.verdict == "failed":
        return empty.model_copy(update={"reason": result.reason})
    shared = set(Comparison.model_fields) & set(PairResult.model_fields)
    facts = {name: getattr(result, name) for name in shared}
    steps = len(ours.layout.steps)
    return empty.model_copy(
        update={**facts, "step": result.first_step, "tensor": result.first_tensor, "steps_compared": steps}
    )


def load(folder: Path) -> Trace:
    """Read the trace of a recorded run, or of a run of the pipeline.

    Raises:
        RecordError: there is none, or it is damaged.
    """
    for place in (folder, folder / "state"):
        if (place / "trace.json").exists():
            return Trace.load(place)
    what = "no such folder" if not folder.exists() else "holds no trace.json: the run was not recorded, or did not end"
    raise RecordError(f"{folder}: {what}")


def _twins_of(folder: Path) -> list[Path]:
    """Return the folders of the twins that a run has beside it, finished ones."""
    return sorted(path.parent for place in ("twins", "state/twins") for path in (folder / place).glob("*/trace.json"))


def _floor(reference: Trace, twins: Sequence[Trace]) -> Floor:
    for twin in twins:
        if mismatch := comparable(reference.layout, twin.layout):
            raise RecordError(f"a twin is of another run: {mismatch}")
        if not twin.layout.twin:
            raise RecordError("a run given as floor is no twin; record it with TRAINPARITY_TWIN=1 (or 2, 3, ...)")
    return NoiseFloor(reference, twins) if twins else AnalyticFloor(reference)


def _tied_otherwise(empty: Comparison, left: Layout, right: Layout) -> Comparison | None:
    """Return the verdict on runs whose parameters differ in nothing but what is shared."""
    odd = set(left.parameters) ^ set(right.parameters)
    if not odd or not odd <= set(left.tied) | set(right.tied):
        return None
    names = ", ".join(sorted(odd))
    return empty.model_copy(
        update={
            "verdict": "different",
            "reason": f"{names} is tied in one run only",
            "cause": "weights-not-loaded",
            "explanation": f"{names} shares its values with another parameter in one run, and has its own in the other",
            "advice": "tie the same weights in both runs, again after loading a checkpoint",
            "step": 0,
            "tensor": f"weight {min(odd)}",
            "weights": "different",
            "evidence": {"tied": [f"{a} = {b}" for a, b in {**left.tied, **right.tied}.items() if a in odd]},
        }
    )
