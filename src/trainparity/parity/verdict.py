"""Are two runs the same training? `bitwise`, `equivalent`, `different`, or why that can't be said."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainparity.parity.causes.ranks import disagreement
from trainparity.parity.diagnosis import explain
from trainparity.parity.difference import Difference
from trainparity.parity.distance import INFINITE, KINDS, Judged, distances, multiples, names, norms
from trainparity.parity.floor import Floor
from trainparity.parity.recording.trace import Trace, comparable
from trainparity.records.run import Status
from trainparity.records.verdict import PairResult, Worst


@dataclass(frozen=True)
class Run:
    """A run's status, and its trace if it trained."""

    status: Status
    trace: Trace | None


def judge(name: str, left: Run, right: Run, floor: Floor | None, margin: float) -> PairResult:
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
    return judge_traces(result, left.trace, right.trace, floor, margin)


def judge_traces(result: PairResult, left: Trace, right: Trace, floor: Floor, margin: float) -> PairResult:
    """Complete `result` for two comparable traces: verdict, distances and, if they differ, the cause."""
    if not _trained(left):
        return result.model_copy(update={"verdict": "failed", "reason": "training did not change any weight"})
    if (row := _diverged(left)) is not None:
        step = left.layout.steps[row]
        reason = f"{result.left} diverged: its weights are not finite after step {step}"
        return result.model_copy(update={"verdict": "failed", "reason": reason})
    off = {kind: multiples(left, right, kind, floor[kind]) for kind in KINDS}
    worst = [_worst(left, right, floor, kind, m) for kind, m in off.items() if m.numel() and m.amax() > 0]
    disagreements = [row for trace in (left, right) if (row := disagreement(trace)) is not None]
    training = _rows(torch.stack([(off[kind] > margin).any(1) for kind in _TRAINING]).any(0)) + disagreements
    rows = training or _rows((off["buffer"] > margin).any(1))
    result = result.model_copy(
        update={
            "worst": worst,
            "distance_over_floor": max((w.distance_over_floor for w in worst), default=0.0),
            "calibrated": floor.calibrated,
            "ranks_agree": not disagreements,
            "weights": "different" if training else "bitwise" if _same_bits(left, right, _BITS[:2]) else "equivalent",
            "verdict": "different" if rows else "bitwise" if _same_bits(left, right, _BITS) else "equivalent",
        }
    )
    if rows:
        return explain(result, Difference(left, right, floor, margin, min(rows)))
    if result.verdict == "equivalent" and (width := _width(left, floor)) * margin > _WIDEST:
        twins = f"the gradients of {result.left}'s twins are {width:.2g} apart at the first step of a window"
        reason = f"the noise floor is too wide to prove anything: {twins}"
        return result.model_copy(update={"verdict": "failed", "weights": None, "reason": reason})
    return result


_WIDEST = 0.5
"""Relative distance of gradients that a floor times the margin must not excuse."""


def _width(reference: Trace, floor: Floor) -> float:
    """Return the largest floor of the whole gradient where a window starts: rounding has not grown there yet."""
    starts = [window.start for window in reference.layout.windows()]
    # In a step that overflows in the reference there is no gradient to be apart.
    widths = floor["gradient"][starts, -1]
    return float(widths[widths.isfinite()].amax()) if widths.isfinite().any() else 0.0


_TRAINING: tuple[Judged, ...] = ("gradient", "update", "weight")
_BITS = ("gradient", "weight", "buffer")


def _rows(beyond: Tensor) -> list[int]:
    """Return the rows of a mask that are set."""
    rows: list[int] = beyond.nonzero().flatten().tolist()
    return rows


def series(left: Trace, right: Trace, floor: Floor) -> list[tuple[int, Judged, float, float]]:
    """Return (step, kind, distance, floor) of the tensor that is the most multiples of the floor away, per step."""
    rows: list[tuple[int, Judged, float, float]] = []
    for kind in KINDS:
        apart = distances(left, right, kind)
        for step, column in enumerate(
            multiples(left, right, kind, floor[kind]).argmax(1).tolist() if apart.numel() else ()
        ):
            rows.append((left.layout.steps[step], kind, float(apart[step, column]), float(floor[kind][step, column])))
    return rows


def _worst(left: Trace, right: Trace, floor: Floor, kind: Judged, multiples: Tensor) -> Worst:
    step, column = divmod(int(multiples.argmax()), multiples.shape[1])
    return Worst(
        kind=kind,
        distance_over_floor=float(multiples[step, column]),
        distance=min(float(distances(left, right, kind)[step, column]), INFINITE),
        floor=min(float(floor[kind][step, column]), INFINITE),
        step=left.layout.steps[step],
        tensor=names(left, kind)[column],
    )


def _same_bits(left: Trace, right: Trace, kinds: Sequence[str]) -> bool:
    return all(torch.equal(left.arrays[f"{kind}/digest"], right.arrays[f"{kind}/digest"]) for kind in kinds)


def _diverged(trace: Trace) -> int | None:
    """Return the first step after which a weight is infinite or not a number."""
    bad = (~trace.arrays["weight/norm"].isfinite()).any(1).nonzero()
    return int(bad[0]) if len(bad) else None


def _trained(trace: Trace) -> bool:
    return bool((norms(trace, "update") > 0).any())
