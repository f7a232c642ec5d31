"""What two runs have come to after their last step, which need not be one that is traced."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainparity.parity.distance import ALL, names, ratio, times, with_all
from trainparity.parity.floor import Floor
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.numbers import number
from trainparity.records.verdict import Verdict


def at_the_end(verdict: Verdict, left: Trace, right: Trace, twins: Sequence[Trace], floor: Floor) -> Verdict:
    """Return a verdict that traced steps are the same, or another one where the runs do not end alike.

    Args:
        verdict: On the traced steps.
        left: The reference.
        right: The other run.
        twins: Of the reference, which show how far right runs part until then.
        floor: The noise floor of the traced steps.
    """
    made = left.layout.made, right.layout.made
    if not all(made):
        return verdict  # of an earlier version
    if made[0] != made[1]:
        reason = (
            f"{verdict.left} made {made[0]} steps and {verdict.right} {made[1]}: {verdict.steps_compared} traced steps "
            f"are {verdict.verdict}, and no more can be said"
        )
        return verdict.unclear(reason)
    ends = [_end(trace) for trace in (left, right)]
    if ends[0] is None or ends[1] is None:
        return verdict.model_copy(update={"reason": _not_compared(left)})
    if torch.equal(ends[0].digest, ends[1].digest):
        return verdict
    apart = _apart(ends[0], ends[1])
    off = times(apart, _floor(left, twins, floor)).nan_to_num(INFINITE)  # of what is not finite nothing is known
    if float(off.max()) <= verdict.margin:
        # Equal bits of traced steps are not those of all.
        return verdict.model_copy(update={"verdict": "equivalent", "weights": "equivalent"})
    if writers := [name for name, trace in _named(verdict, left, right) if trace.layout.written]:
        return _written(verdict, left, writers, off)
    return _different(verdict, left, off)


class _End(NamedTuple):
    """The weights that a run ends with."""

    sketch: Tensor
    """float64 [P, S]"""
    digest: Tensor
    """int64 [P]"""


def _end(trace: Trace) -> _End | None:
    """Return how a run ends; None where that is not known, as where ranks hold parts of the weights."""
    if "end/digest" in trace.arrays:
        return _End(trace.arrays["end/sketch"], trace.arrays["end/digest"])
    if trace.layout.steps[-1] < trace.layout.made - 1:
        return None
    return _End(trace.arrays["weight/sketch"][-1], trace.arrays["weight/digest"][-1])


def _named(verdict: Verdict, left: Trace, right: Trace) -> list[tuple[str, Trace]]:
    return [(verdict.left, left), (verdict.right, right)]


def _not_compared(left: Trace) -> str:
    last, made = left.layout.steps[-1], left.layout.made
    return (
        f"NOT compared: the steps after step {last}, to step {made - 1}, as no whole weights are there when the run "
        "ends. With interval=1 all steps are compared"
    )


def _apart(one: _End, other: _End) -> Tensor:
    """Return the relative L2 distance of the weights at the end: float64 [P + 1]."""
    lengths, differ = (torch.linalg.vector_norm(of, dim=1)[None] for of in (one.sketch, one.sketch - other.sketch))
    return ratio(with_all(differ), with_all(lengths))[0]


def _floor(reference: Trace, twins: Sequence[Trace], floor: Floor) -> Tensor:
    """Return how far right runs part until the end: float64 [P + 1]; without twins by the square of the steps."""
    traced, end = floor["weight"][-1], _end(reference)
    ends = [_end(twin) for twin in twins if twin.layout.made == reference.layout.made]
    apart = [_apart(end, other) for other in ends if end and other]
    if not apart:
        return traced * ((1 + reference.layout.made) / (1 + reference.layout.steps[-1])) ** 2
    return torch.stack([traced, *apart]).amax(0)


def _written(verdict: Verdict, left: Trace, writers: Sequence[str], off: Tensor) -> Verdict:
    """Return that the runs end apart, where what is after the last step need not be the training's."""
    steps = left.layout.steps
    unseen = f", nor of the steps after step {steps[-1]}" if steps[-1] < left.layout.made - 1 else ""
    reason = (
        f"{len(steps)} traced steps are {verdict.verdict}, and then the runs end with other weights "
        f"({number(float(off.max()))} x the noise floor apart). After the last step that was recorded "
        f"{' and '.join(writers)} wrote into the weights, as no step before: what a loop does there, or an optimizer "
        f"that is not recorded, nothing can be said of{unseen}"
    )
    advice = "close the Recorder before the loop writes into the weights; tell it of a new optimizer by `go_on_with`"
    return verdict.unclear(reason, advice=advice)


def _different(verdict: Verdict, left: Trace, off: Tensor) -> Verdict:
    last, made = left.layout.steps[-1], left.layout.made
    worst = int(off[:-1].argmax())
    tensor = f"weight {names(left, 'weight')[worst]}" if float(off[worst]) >= float(off[-1]) / 2 else f"weight {ALL}"
    return verdict.model_copy(update={
        "verdict": "different",
        "weights": "different",
        "step": made - 1,
        "tensor": tensor,
        "distance_over_floor": max(verdict.distance_over_floor or 0.0, float(off.max())),
        "cause": "unknown",
        "reason": f"{tensor} is {number(float(off.max()))} x the noise floor apart after the last step, {made - 1}",
        "explanation": f"the runs agree in all {len(left.layout.steps)} steps that were traced, the last of them step "
        f"{last}, and end with other weights: they part in a step after it, or a loop writes into weights at its end",
        "advice": "record all steps, or more of them (`interval=1`, `first=`), and the step and its cause are seen",
        "resolution": None,
        "resolutions": [],
    })  # fmt: skip
