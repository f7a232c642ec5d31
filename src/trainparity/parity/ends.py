"""What two runs have come to after their last step, which need not be one that is traced."""

from collections.abc import Sequence

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
    if not all(_KNOWN in trace.arrays for trace in (left, right)):
        return verdict
    if torch.equal(left.arrays[_KNOWN], right.arrays[_KNOWN]):
        return verdict
    apart = _apart(left, right)
    off = times(apart, _floor(left, twins, floor)).nan_to_num(INFINITE)  # of what is not finite nothing is known
    if float(off.max()) <= verdict.margin:
        # Equal bits of traced steps are not those of all.
        return verdict.model_copy(update={"verdict": "equivalent", "weights": "equivalent"})
    return _different(verdict, left, off)


_KNOWN = "end/digest"


def _apart(left: Trace, right: Trace) -> Tensor:
    """Return the relative L2 distance of the weights at the end: float64 [P + 1]."""
    ours, theirs = (trace.arrays["end/sketch"] for trace in (left, right))
    lengths, differ = (torch.linalg.vector_norm(each, dim=1)[None] for each in (ours, ours - theirs))
    return ratio(with_all(differ), with_all(lengths))[0]


def _floor(reference: Trace, twins: Sequence[Trace], floor: Floor) -> Tensor:
    """Return how far right runs part until the end: float64 [P + 1]; without twins by the square of the steps."""
    ended = [twin for twin in twins if _KNOWN in twin.arrays and twin.layout.made == reference.layout.made]
    traced = floor["weight"][-1]
    if not ended:
        return traced * ((1 + reference.layout.made) / (1 + reference.layout.steps[-1])) ** 2
    return torch.stack([traced, *(_apart(reference, twin) for twin in ended)]).amax(0)


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
