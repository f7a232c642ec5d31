"""Are two runs the same training? `bitwise`, `equivalent`, `different`, or why that can't be said."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainparity.parity.distance import KINDS, Compared, distances, names, norms
from trainparity.parity.floor import NoiseFloor
from trainparity.parity.trace import Trace, comparable
from trainparity.records import PairResult, Status, Worst

INFINITE = 1e300
"""Written for an infinite multiple of the floor: JSON has no infinity."""


@dataclass(frozen=True)
class Run:
    """A run's status, and its trace if it trained."""

    status: Status
    trace: Trace | None


def judge(name: str, left: Run, right: Run, floor: NoiseFloor | None, margin: float) -> PairResult:
    """Judge a pair: `equivalent` if no tensor is beyond `margin` x floor at any step.

    `floor` is the noise floor of the reference of the runs' precision; None if that did not train.
    """
    result = PairResult(name=name, left=left.status.run, right=right.status.run, verdict="skipped")
    for run in (left, right):
        if run.trace is None:
            reason = f"{run.status.run} was {run.status.status}: {run.status.reason}"
            verdict = "failed" if run.status.status == "failed" else "skipped"
            return result.model_copy(update={"verdict": verdict, "reason": reason})
    assert left.trace and right.trace
    ours, theirs = left.trace.layout.precision, right.trace.layout.precision
    if ours != theirs:
        reason = f"{ours} against {theirs}: runs are compared in one precision, with twins of the same"
        return result.model_copy(update={"reason": reason})
    if floor is None:
        return result.model_copy(update={"reason": "there is no noise floor: the reference did not train"})
    if mismatch := comparable(left.trace.layout, right.trace.layout):
        return result.model_copy(update={"verdict": "different", "reason": mismatch})
    if not _trained(left.trace):
        return result.model_copy(update={"verdict": "failed", "reason": "training did not change any weight"})
    if (step := _diverged(left.trace)) is not None:
        reason = f"{left.status.run} diverged: its weights are not finite after step {step}"
        return result.model_copy(update={"verdict": "failed", "reason": reason})
    return _compare(result, left.trace, right.trace, floor, margin)


def _compare(result: PairResult, left: Trace, right: Trace, floor: NoiseFloor, margin: float) -> PairResult:
    multiples = {kind: _multiple(distances(left, right, kind), floor[kind]) for kind in KINDS}
    worst = [_worst(left, right, floor, kind, m) for kind, m in multiples.items() if m.numel() and m.amax() > 0]
    largest = max((w.distance_over_floor for w in worst), default=0.0)
    first = _first_beyond(left, multiples, margin)
    update: dict[str, object] = {"worst": worst, "distance_over_floor": largest, "verdict": "equivalent"}
    disagreement = _first_disagreement(left, right)
    if disagreement is not None:
        update |= {"ranks_agree": False, "verdict": "different", "first_step": disagreement}
        update["reason"] = f"ranks hold different parameters after step {disagreement}"
    if first is not None:
        step, tensor = first
        update |= {"verdict": "different", "first_step": step, "first_tensor": tensor}
        update.setdefault("reason", _where(step, tensor, worst, margin))
    elif disagreement is None and _same_bits(left, right):
        update["verdict"] = "bitwise"
    return result.model_copy(update=update)


def series(left: Trace, right: Trace, floor: NoiseFloor) -> list[tuple[int, Compared, float, float]]:
    """Return (step, kind, distance, floor) of the tensor that is the most multiples of the floor away, per step."""
    rows: list[tuple[int, Compared, float, float]] = []
    for kind in KINDS:
        apart = distances(left, right, kind)
        for step, column in enumerate(_multiple(apart, floor[kind]).argmax(1).tolist() if apart.numel() else ()):
            rows.append((step, kind, float(apart[step, column]), float(floor[kind][step, column])))
    return rows


def _multiple(apart: Tensor, floor: Tensor) -> Tensor:
    # Where a twin overflowed, or moved what is zero in the reference, the floor is infinite: nothing can be said.
    return torch.where(floor.isinf(), 0.0, apart / floor).nan_to_num(posinf=INFINITE)


def _worst(left: Trace, right: Trace, floor: NoiseFloor, kind: Compared, multiples: Tensor) -> Worst:
    step, column = divmod(int(multiples.argmax()), multiples.shape[1])
    return Worst(
        kind=kind,
        distance_over_floor=float(multiples[step, column]),
        distance=min(float(distances(left, right, kind)[step, column]), INFINITE),
        floor=min(float(floor[kind][step, column]), INFINITE),
        step=step,
        tensor=names(left, kind)[column],
    )


def _first_beyond(trace: Trace, multiples: dict[Compared, Tensor], margin: float) -> tuple[int, str] | None:
    """Return the first step with a tensor beyond the margin, and the first such tensor in a step's order."""
    found: list[tuple[int, int, str]] = []
    for order, (kind, multiple) in enumerate(multiples.items()):
        beyond = (multiple > margin).nonzero()
        if len(beyond):
            step, column = beyond[0].tolist()
            found.append((step, order, f"{kind} {names(trace, kind)[column]}"))
    return (min(found)[0], min(found)[2]) if found else None


def _where(step: int, tensor: str, worst: list[Worst], margin: float) -> str:
    largest = max(worst, key=lambda w: w.distance_over_floor)
    return (
        f"beyond {margin:g} x the noise floor from step {step} on, first in {tensor}; at most "
        f"{largest.distance_over_floor:.2g} x, in {largest.kind} {largest.tensor} at step {largest.step}"
    )


def _first_disagreement(*traces: Trace) -> int | None:
    """Return the first step after which a run's ranks did not hold the same parameters."""
    for trace in traces:
        digests = trace.arrays["rank_digest"]
        if len(bad := (digests != digests[:, :1]).any(1).nonzero()):
            return int(bad[0])
    return None


def _same_bits(left: Trace, right: Trace) -> bool:
    kinds = ("gradient", "weight", "buffer")
    return all(torch.equal(left.arrays[f"{kind}/digest"], right.arrays[f"{kind}/digest"]) for kind in kinds)


def _diverged(trace: Trace) -> int | None:
    """Return the first step after which a weight is infinite or not a number."""
    bad = (~trace.arrays["weight/norm"].isfinite()).any(1).nonzero()
    return int(bad[0]) if len(bad) else None


def _trained(trace: Trace) -> bool:
    return bool((norms(trace, "update") > 0).any())
