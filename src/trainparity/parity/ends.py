"""What two runs have come to after their last step, which need not be one that is traced."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.extent import judged_by
from trainparity.parity.known_ends import End, ends_of, known_ends, moved_by_training, tail, written_beside
from trainparity.parity.noise.assumed import OF_TWINS, of_their_way
from trainparity.parity.noise.distance import names, ratio, relative, times
from trainparity.parity.noise.floor import Floor
from trainparity.parity.recording.trace import Trace
from trainparity.parity.statistics_at_the_end import judged_by_statistics
from trainparity.records.base import INFINITE
from trainparity.records.numbers import exact, number
from trainparity.records.verdict import Verdict, Worst


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
    ends = known_ends(left, right)
    if (unknown := written_beside(verdict, left, right)) is not None:
        verdict = verdict.model_copy(update={"reason": unknown})
    if ends[0] is None or ends[1] is None:
        return judged_by(verdict, "nothing", made[0], "when the run ends, its trained weights are not there whole")
    if not all(bool(end.sketch.isfinite().all()) for end in ends if end):
        reason = (
            f"{verdict.steps_compared} traced steps are {verdict.verdict}, and then weights are not finite any more"
        )
        return verdict.unclear(reason, advice="record all steps (`interval=1`) to see where that begins")
    runs = zip((verdict.left, verdict.right), (left, right), strict=True)
    written = [name for name, trace in runs if trace.layout.written]
    if torch.equal(ends[0].digest, ends[1].digest):
        same = judged_by(verdict, "weights at the end", made[0], _OVERWRITTEN if written else None)
        if written and not tail(left):
            same = same.model_copy(update={"reason": _OVERWRITTEN_AFTER})
        return judged_by_statistics(same, left, right, twins, floor)
    moved = moved_by_training(left) | moved_by_training(right)
    apart = _apart(ends[0], ends[1], moved)
    off = times(apart, _floor(left, ends[0], twins, floor, moved))
    off = off.nan_to_num(INFINITE)  # of what is not finite nothing is known
    if float(off.max()) <= verdict.margin:
        if assumed := _assumed(left, twins, ends[0], ends[1]):
            return verdict.unclear(assumed, advice=OF_TWINS)
        # Equal bits of traced steps are not those of all.
        known = max(verdict.distance_over_floor or 0.0, float(off.max()))
        alike = {"verdict": "equivalent", "weights": "equivalent", "distance_over_floor": known}
        same = judged_by(verdict.model_copy(update=alike), "weights at the end", made[0])
        return judged_by_statistics(same, left, right, twins, floor, float(apart[-1]))
    if written:
        return _written(verdict, left, written, off)
    return _different(judged_by(verdict, "weights at the end", made[0]), left, right, off, apart)


# Equal ends may be what loops have written: what was before is then seen by nothing else.
_OVERWRITTEN = (
    "into these the loops have written after the last step, as between no steps; close the Recorder before they do"
)
_OVERWRITTEN_AFTER = (
    "compared by its end alone: what the loops do after the last step that is recorded: there they have written into "
    "the weights, as between no steps"
)


def _apart(one: End, other: End, moved: Tensor) -> Tensor:
    """Return the relative L2 distance of the weights at the end: float64 [P + 1]; zero where nothing moved."""
    lengths, differ = (
        torch.linalg.vector_norm(of, dim=1).masked_fill(~moved, 0.0)[None]
        for of in (one.sketch, one.sketch - other.sketch)
    )
    return relative(differ, lengths)[0]


def _floor(reference: Trace, end: End, twins: Sequence[Trace], floor: Floor, moved: Tensor) -> Tensor:
    """Return how far right runs part until the end: float64 [P + 1]; without twins by the square of the steps."""
    traced = torch.maximum(floor["weight"][-1], _of_averages(reference))
    apart = [_apart(end, other, moved) for other in ends_of(twins, reference)]
    if not apart:
        traced = torch.maximum(traced, _of_what_they_follow(reference, traced))
        return traced * ((1 + reference.layout.made) / (1 + reference.layout.steps[-1])) ** 2
    return torch.stack([traced, *apart]).amax(0)


def _assumed(left: Trace, twins: Sequence[Trace], ours: End, theirs: End) -> str | None:
    """Say that no twin shows how far right runs part until the end, where these are far apart of the way they came."""
    if not tail(left) or ends_of(twins, left):
        return None
    part = of_their_way(left.arrays["start/sketch"][0], (ours.sketch, theirs.sketch))
    if part <= _PART:
        return None
    return (
        f"{len(left.layout.steps)} traced steps are the same, and then the runs end {exact(part, 2)} of the way that "
        "training came apart: no twin made as many steps, so nobody knows whether right runs do"
    )


_PART = 0.1
"""Part of the way that training came from which on ends are not known to be the same without twins."""


def _of_averages(reference: Trace) -> Tensor:
    """Return how far averages of weights may drift that no optimizer holds: a sum may round one way in each step.

    In a coarse format that would excuse anything after some steps, as of an average that one run stops to make.
    """
    unheld = ~reference.arrays["held"].any(0)
    units = torch.tensor(list(reference.layout.stored().values()), dtype=torch.float64)
    drift = torch.minimum(units * reference.layout.made / 4, (_DRIFT_IN_UNITS * units).clamp(min=_DRIFT))
    return torch.nn.functional.pad(torch.where(unheld, drift, 0.0), (0, 1))


def _of_what_they_follow(reference: Trace, floor: Tensor) -> Tensor:
    """Return how far averages of weights may be apart for those that they follow, of the same shape: float64 [P + 1].

    No twin shows it. Between two steps an average moves by a part of the way to these.
    """
    shapes, starts = list(reference.layout.parameters.values()), reference.arrays["start/sketch"]
    held, lengths = reference.arrays["held"].any(0), torch.linalg.vector_norm(starts[-1], dim=1)
    moved = (starts != starts[:1]).any(2).any(0)
    found = torch.zeros_like(floor)
    for place in (moved & ~held).nonzero().flatten().tolist():
        followed = torch.tensor([shape == shapes[place] for shape in shapes]) & held
        found[place] = (floor[:-1] * lengths / lengths[place])[followed].amax() if followed.any() else 0.0
    return found.nan_to_num(0.0, posinf=0.0)


_DRIFT, _DRIFT_IN_UNITS = 1e-3, 4
"""Part of an average, and in a coarse format unit roundoffs, that it may drift by, however long a run is."""


def _written(verdict: Verdict, left: Trace, writers: Sequence[str], off: Tensor) -> Verdict:
    """Return that the runs end apart, where what is after the last step need not be the training's."""
    unseen = f", nor of {tail(left)}" if tail(left) else ""
    reason = (
        f"{len(left.layout.steps)} traced steps are {verdict.verdict}, and then the runs end with other weights "
        f"({number(float(off.max()))} x the noise floor apart). After the last step that was recorded, weights of "
        f"{' and '.join(writers)} were written, as between no steps before: by the loop, or by an optimizer that is "
        f"not recorded. Nothing can be said of that{unseen}"
    )
    advice = "close the Recorder before the loop writes into the weights; tell it of a new optimizer by `go_on_with`"
    return verdict.unclear(reason, advice=advice)


def _different(verdict: Verdict, left: Trace, right: Trace, off: Tensor, apart: Tensor) -> Verdict:
    worst, made = int(off[:-1].argmax()), left.layout.made - 1
    place = worst if float(off[worst]) >= float(off[-1]) / 2 else len(off) - 1
    name = names(left, "weight")[place]
    times_off, distance = float(off[place]), min(float(apart[place]), INFINITE)
    end = Worst(
        kind="weight",
        distance_over_floor=times_off,
        distance=distance,
        floor=distance / times_off,
        step=made,
        tensor=name,
    )
    found = {
        "verdict": "different",
        "weights": "different",
        "step": made,
        "tensor": f"weight {name}",
        "distance_over_floor": max(verdict.distance_over_floor or 0.0, float(off.max())),
        "reason": f"weight {name} is {number(float(off.max()))} x the noise floor apart after the last step, {made}",
        "resolution": None,
        "resolutions": [],
        "worst": [*(one for one in verdict.worst if one.kind != "weight"), end],
    }
    return verdict.model_copy(update=found | (_of_other_start(left, right, worst) or _of_other_steps(left)))


def _of_other_start(left: Trace, right: Trace, worst: int) -> dict[str, object] | None:
    """Return the cause where the weight that is the furthest apart was so from the start, and no optimizer holds it."""
    starts = [trace.arrays["start/sketch"][0, worst] for trace in (left, right)]
    apart = float(ratio(torch.linalg.vector_norm(starts[0] - starts[1]), torch.linalg.vector_norm(starts[0])))
    if apart <= _STARTS * left.layout.unit_roundoff or any(t.arrays["held"][:, worst].any() for t in (left, right)):
        return None
    name = names(left, "weight")[worst]
    return {
        "step": left.layout.steps[0],
        "tensor": f"start {name}",
        "cause": "weights-not-loaded",
        "link": "start",
        "explanation": f"{name}, which no optimizer holds and the loop moves, starts from other values, "
        f"{number(apart)} apart; what it makes of gradients is within the noise floor",
        "advice": "load the same checkpoint (or seed) into every parameter before training",
    }


_STARTS = 4
"""Unit roundoffs beyond which weights that runs start from are others: they were not moved."""


def _of_other_steps(left: Trace) -> dict[str, object]:
    """Return what is said where the runs part in steps that were not traced, or after all of them."""
    last, several = left.layout.steps[-1], len(left.layout.steps)
    if tail(left):
        return {
            "cause": "unknown",
            "explanation": f"the runs agree in all {several} steps that were traced, the last of them step {last}, and "
            "end with other weights: they part in a step after it, or a loop writes into weights at its end",
            "advice": "record all steps, or more of them (`interval=1`, `first=`), and the step and its cause are seen",
        }
    return {
        "cause": "unknown",
        "explanation": f"the runs agree in all {several} steps, and end with other weights: a loop writes into weights "
        "after its last step, as one that averages them",
        "advice": "compare what both loops do to the weights after a step, as averaging, clamping or loading them",
    }
