"""Gradients that are added up over the wrong micro-batches."""

from trainparity.parity.causes.finding import Evidence, Finding, listed, rule
from trainparity.parity.causes.passes import forward_passes, same_cut, see_other_samples, without_own_samples
from trainparity.parity.noise.distance import sketches
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit
from trainparity.records.numbers import number


def _carried_differs(difference: Difference) -> bool:
    """Tell whether a step begins with a gradient, or ends without one, in one run only."""
    if _lost_differs(difference):
        return True
    carried = [_carried(trace, difference.row) for trace in difference.traces]
    return (carried[0] > 0) != (carried[1] > 0)


@rule(
    "gradients-not-zeroed",
    "accumulation",
    proof="a gradient was held before the step's first backward; or none before a later one, and the applied "
    "gradient is that of the micro-batches from there on alone; or backward made gradients and none is left for the "
    "update",
    advice="call optimizer.zero_grad() once in every optimizer step, before its first backward",
    differs=_carried_differs,
)
def gradients_not_zeroed(difference: Difference) -> Finding | None:
    """Gradients held before the first backward pass of a step, or none held before a later one."""
    held, closures = difference.pair("rank/held"), difference.numbers("closure/held")
    if bool(closures[0]) != bool(closures[1]):
        return Finding(
            f"in {difference.who(bool(closures[0]))} the optimizer evaluates its closure again with a gradient of norm "
            f"{number(max(closures))} left in it",
            {"norm_held": list(closures)},
            advice="call optimizer.zero_grad() at the start of the closure",
        )
    if held is None or (difference.stage != "gradient" and not _carried_differs(difference)):
        return None
    left, right = held
    if not (left.numel() and right.numel()):
        return None
    evidence: Evidence = {"norm_held_before_each_pass": [listed(left[0].tolist()), listed(right[0].tolist())]}
    carried = [_carried(trace, difference.row) for trace in difference.traces]
    if (carried[0] > 0) != (carried[1] > 0):
        return Finding(
            f"step {difference.step} of {difference.who(carried[0] > 0)} begins with a gradient of norm "
            f"{number(max(carried))} left from the step before",
            evidence,
        )
    lost = [_thrown_away(trace, difference.row) for trace in difference.traces]
    if _lost_differs(difference):
        return Finding(
            f"at step {difference.step} of {difference.who(lost[0])} all gradients are thrown away between "
            "backward and the update",
            evidence,
            advice="call optimizer.zero_grad() after the optimizer's step or before backward, not between them",
        )
    early = [_zeroed_between(trace, difference.row) for trace in difference.traces]
    if early[0] != early[1]:
        return Finding(
            f"at step {difference.step} {difference.who(early[0])} throws the gradients of earlier backward passes "
            f"away before a later one, and {difference.who(early[1])} does not",
            evidence,
            advice=_NOT_BETWEEN if early[1] else _WHERE_THE_REFERENCE_DOES,
        )
    return None


@rule(
    "gradients-not-zeroed",
    "accumulation",
    proof="a run makes backward passes before those whose gradients alone the other one applies",
    advice="call optimizer.zero_grad() once in every optimizer step, before its first backward",
)
def takes_more(difference: Difference) -> Finding | None:
    """An update takes what earlier backward passes have made, besides what the other run's takes."""
    if difference.stage != "gradient" or any(_left_out(difference)) or without_own_samples(difference):
        return None  # some of what a run passes forward never comes back, or is passed no more
    if difference.is_a_multiple and not same_cut(difference):
        return None  # micro-batches, of which each weighs otherwise
    for right in (True, False):
        more, less = difference.traces[right], difference.traces[not right]
        micro, total = more.arrays["rank/micro"][difference.row], less.arrays["rank/total"][difference.row][0]
        counts = [int(trace.arrays["rank/backwards"][difference.row].amax()) for trace in (more, less)]
        first = counts[0] - counts[1]
        if not 0 < first < counts[0] <= micro.shape[1] or not counts[1] or not micro[:, :first].any():
            continue
        own = more.arrays["rank/total"][difference.row][0]
        applies_all = fit(micro.sum(1).mean(0), own)[1] < _SAME
        if applies_all and fit(micro[:, first:].sum(1).mean(0), total)[1] < _SAME:
            return Finding(
                f"at step {difference.step} the update of {difference.who(not right)} takes the gradients of {first} "
                f"backward passes more, which come before all that {difference.who(right)} makes",
                {"backward_passes": [float(count) for count in (counts[::-1] if right else counts)]},
                advice=_WHERE_THE_REFERENCE_DOES if right else _NOT_BETWEEN,
            )
    return None


_NOT_BETWEEN = "call optimizer.zero_grad() after the optimizer's step, not between micro-batches"

_WHERE_THE_REFERENCE_DOES = (
    "call optimizer.zero_grad() where the reference does, as before a model's own loss goes backward where another "
    "model's came through it, or freeze it for that one"
)


def _carried(trace: Trace, row: int) -> float:
    """Return the norm of the gradient that a step begins with; 0 if a backward pass of the step found none.

    A pass before that one belongs to another model's step, as a generator's goes through its discriminator.
    """
    count = int(trace.arrays["rank/backwards"][row].amax())
    held = trace.arrays["rank/held"][row][:, : max(1, count)]
    if not held.numel():  # gradients that no backward pass has made, as torch.func's
        return 0.0
    return 0.0 if bool((held == 0).any(1).all()) else float(held[:, 0].amax())


def _thrown_away(trace: Trace, row: int) -> bool:
    """Tell whether backward passes made gradients and none is left for the update, clipped or not."""
    made, left = trace.arrays["rank/micro"][row], trace.arrays["rank/total"][row]
    if not made.any() or trace.arrays["applied/norm"][row].any():
        return False
    # Else what is left is of parameters that no optimizer holds.
    return bool(trace.arrays["gradient/norm"][row].any() or not left.any())


def _lost_differs(difference: Difference) -> bool:
    """Tell whether one run alone throws its gradients away; an optimizer of one class may do so at its step's end."""
    left, right = difference.left, difference.right
    lost = [_thrown_away(trace, difference.row) for trace in (left, right)]
    return lost[0] != lost[1] and left.layout.optimizer == right.layout.optimizer


def _zeroed_between(trace: Trace, row: int) -> bool:
    """Tell whether the gradient applied is that of the last micro-batches alone, though earlier ones made some."""
    micro, held, left = (trace.arrays[f"rank/{what}"][row] for what in ("micro", "held", "left"))
    if left.any():  # shards: what each pass made is not known, but what it left behind
        return bool(((left[:, :-1] > 0) & (held[:, 1 : left.shape[1]] == 0)).any())
    count = min(int(trace.arrays["rank/backwards"][row].amax()), micro.shape[1], held.shape[1])
    zeroed = [n for n in range(1, count) if bool((held[:, n] == 0).any()) and bool(micro[:, :n].any())]
    last = (micro[:, number:count].sum(1).mean(0) for number in zeroed)
    return any(fit(one, trace.arrays["rank/total"][row][0])[1] < _SAME for one in last)


def _left_out(difference: Difference) -> list[float]:
    """Return how many forward passes of each run no backward pass comes through."""
    forward = _forward_passes(difference)
    back, reached = (difference.numbers(f"rank/{what}") for what in ("backwards", "reached"))
    elsewhere = (
        e * t.layout.world_size for e, t in zip(difference.numbers("made_elsewhere"), difference.traces, strict=True)
    )
    # One backward pass may come through several forward passes, whose outputs make one loss; one that comes through
    # what another model made, as a discriminator's through fakes, is none of those over samples.
    came_through = [max(b - e, r) for b, e, r in zip(back, elsewhere, reached, strict=True)]
    return [max(0.0, f - c) for f, c in zip(forward, came_through, strict=True)]


def _forward_passes(difference: Difference) -> list[float]:
    return [float(forward_passes(trace, difference.row).sum()) for trace in difference.traces]


@rule(
    "missing-backward",
    "backward",
    proof="a run has forward passes that no backward pass follows, as many more than the other one",
    advice="call backward for the loss of every micro-batch, and look for a detach between a pass and its loss",
)
def missing_backward(difference: Difference) -> Finding | None:
    """Forward passes without a backward pass, in one run only."""
    left_out, back = _left_out(difference), difference.numbers("rank/backwards")
    if difference.stage != "gradient":
        return None
    forward = _forward_passes(difference)
    if bool(left_out[0]) == bool(left_out[1]) or not all(back):
        return None
    if see_other_samples(difference):
        return None  # passes more than the training's, as to measure accuracy
    return Finding(
        f"at step {difference.step} of {difference.who(left_out[0] > 0)} {max(left_out):g} of {max(forward):g} forward "
        "passes have no backward pass; in the other run all have one",
        {"forward_passes": forward, "backward_passes": [*back]},
    )


@rule(
    "missing-backward",
    "backward",
    proof="a run makes an update without a backward pass since the one before, from the same gradient again",
    advice="call optimizer.step() once for the backward passes of a step, and look for a second call of it",
)
def updated_again(difference: Difference) -> Finding | None:
    """An optimizer that steps twice with one gradient, in one run only."""
    again = [_same_gradient_again(trace, difference.row) for trace in difference.traces]
    if difference.stage != "gradient" or again[0] == again[1]:
        return None
    return Finding(
        f"step {difference.step} of {difference.who(again[0])} is made without a backward pass: the gradient of step "
        f"{difference.step - 1} is applied again",
        {"backward_passes": [*difference.numbers("rank/backwards")]},
    )


def _same_gradient_again(trace: Trace, row: int) -> bool:
    """Tell whether a step has neither forward nor backward passes, and the gradient of the step before it, if any."""
    steps = trace.layout.steps
    if not row or steps[row] != steps[row - 1] + 1 or trace.arrays["rank/backwards"][row].any():
        return False
    if trace.arrays["num_samples"][row].any() or not trace.arrays["gradient/norm"][row].any():
        return False
    before, now = sketches(trace, "gradient")[row - 1 : row + 1].flatten(1)
    factor, rest = fit(before, now)  # shortened, where the step before has clipped it
    return 0 < factor < 1 + _SAME and rest < _SAME


@rule(
    "missing-backward",
    "backward",
    proof="a run makes an update before any forward or backward pass, and there is no gradient for it",
    advice="call optimizer.step() after the backward passes of its step, and look for one in front of them",
)
def updated_before(difference: Difference) -> Finding | None:
    """An optimizer that steps where nothing has passed yet, in one run only."""
    before = [_without_anything(trace, difference.row) for trace in difference.traces]
    if before[0] == before[1] or not any(difference.numbers("rank/backwards")):
        return None
    return Finding(
        f"step {difference.step} of {difference.who(before[0])} is made before any forward or backward pass, without "
        "a gradient: those of its samples come too late",
        {"backward_passes": [*difference.numbers("rank/backwards")]},
    )


def _without_anything(trace: Trace, row: int) -> bool:
    """Tell whether a step has no passes and no gradient, neither a new one nor one of the step before."""
    seen = ("rank/rows", "rank/backwards", "num_samples", "gradient/norm", "applied/norm")
    return not any(bool(trace.arrays[name][row].any()) for name in seen)


_SAME = 1e-3
"""What two readings of one gradient may be apart, relative to its norm."""
