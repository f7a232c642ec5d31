"""Parameters with a gradient that one run does not move."""

import torch
from torch import Tensor

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.precision import stored_otherwise
from trainparity.parity.noise.distance import ALL, norms
from trainparity.parity.noise.rounding import stored_rounding
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some
from trainparity.records.numbers import counted


@rule(
    "parameters-not-updated",
    "update",
    proof="several optimizers take turns, and one of them makes more steps between two of another's",
    advice="call the step of every optimizer in every iteration",
)
def steps_left_out(difference: Difference) -> Finding | None:
    """An optimizer that makes no step while another one does."""
    sequence, steps = difference.pair("sequence"), difference.left.layout.steps
    if sequence is None or int(sequence[0]) == int(sequence[1]):
        return None
    # Of a first step only the next one tells whether others make more of them, or the same before it.
    row = max(difference.row, 1)
    if row == len(steps) or steps[row] != steps[row - 1] + 1:
        return None  # nobody knows how many were made in between
    counts = [trace.arrays["sequence"][row - 1 : row + 1].tolist() for trace in difference.traces]
    between = [int(now) - int(then) - 1 for then, now in counts]
    if between[0] == between[1]:
        return None
    return Finding(
        f"before its step {steps[row]} the other optimizers make {counted(between[0], 'step')} in "
        f"{difference.runs[0]} and {between[1]} in {difference.runs[1]}",
        {"steps_of_others": [float(count) for count in between]},
    )


@rule(
    "parameters-not-updated",
    "update",
    proof="an optimizer makes steps, and no backward pass ever reaches a parameter that it holds",
    advice="make the optimizer from the parameters of the model that the loss is made with: not of a copy of it, and "
    "after it is loaded, wrapped or replaced",
)
def never_reached(difference: Difference) -> Finding | None:
    """An optimizer whose parameters have no part in the loss, as those of a copy."""
    traces = difference.traces
    reached = [bool(t.arrays["rank/backwards"].any() or t.arrays["gradient/norm"].any()) for t in traces]
    if difference.stage != "gradient" or reached[0] == reached[1]:
        return None
    return Finding(
        f"no backward pass reaches what the optimizer of {difference.who(not reached[0])} holds, in any traced step: "
        "the loss is made with other tensors",
        {"reached": [float(one) for one in reached]},
    )


def _unheld(difference: Difference) -> list[str]:
    """Return the parameters that one optimizer alone holds and moves: with a gradient in both runs, or by decay."""
    held = difference.at("held")
    if torch.equal(*held):  # as in nearly every step
        return []
    gradients, moved = difference.norms("gradient"), [lengths > 0 for lengths in difference.norms("update")]
    odd = (held[0] & ~held[1] & moved[0] & ~moved[1]) | (held[1] & ~held[0] & moved[1] & ~moved[0])
    return difference.named(odd & (_seen_to_move(difference) | (gradients[0] > 0) & (gradients[1] > 0)))


def _unheld_differ(difference: Difference) -> bool:
    return bool(_unheld(difference))


@rule(
    "parameters-not-updated",
    "start",
    proof="a run starts from other weights in parameters with a gradient that one optimizer alone holds and moves",
    advice="make the optimizer after layers are replaced: it holds the parameters that it was given, not those that "
    "have their names now",
)
def made_after_the_optimizer(difference: Difference) -> Finding | None:
    """A layer that is put into the model when the optimizer is made already: its weights are new, and stay."""
    names = [name for name in difference.beyond["start"] if name != ALL]
    if difference.row or not names or not set(names) <= set(_unheld(difference)):
        return None
    holds = bool(difference.at("held")[0][difference.place(names[0])])
    return Finding(
        f"{some(names)} {'starts' if len(names) == 1 else 'start'} from other values in {difference.who(not holds)}, "
        f"where the optimizer does not hold {'it' if len(names) == 1 else 'them'}, as of a layer that is made after it",
        {"parameters": names, "distance": difference.distance("start")},
    )


def _seen_to_move(difference: Difference) -> Tensor:
    """Return the parameters whose update in one of the runs would not be rounded away if it were half: bool [P].

    Weights in bf16 take no update that is less than half of their last place.
    """
    row, traces = difference.row, difference.traces
    found = [norms(trace, "update")[row] > 2 * stored_rounding(trace, row) for trace in traces]
    return found[0] | found[1]


@rule(
    "parameters-not-updated",
    "update",
    proof="gradients differ of those parameters alone that one optimizer does not hold, and neither moves nor zeroes",
    advice="make the optimizer after the model is moved, wrapped or sharded, from all its parameters",
)
def neither_moved_nor_zeroed(difference: Difference) -> Finding | None:
    """Parameters that an optimizer does not hold, where its `zero_grad` leaves what another loss gave them."""
    names, off = _unheld(difference), [name for name in difference.beyond["gradient"] if name != ALL]
    with_gradient = difference.named(torch.logical_and(*(norms > 0 for norms in difference.norms("gradient"))))
    if difference.stage != "gradient" or not off or not set(off) <= set(names) & set(with_gradient):
        return None
    holds = bool(difference.at("held")[0][difference.place(off[0])])
    return Finding(
        f"the optimizer of {difference.who(not holds)} does not hold {some(names)}: it moves none of them, and its "
        "`zero_grad` leaves their gradients",
        {"parameters": names},
    )


@rule(
    "parameters-not-updated",
    "update",
    proof="a parameter has a gradient, or is decayed, and does not move in one run, by more than its format rounds "
    "away; whether the optimizer holds it",
    advice="make the optimizer after the model is moved, wrapped or sharded, from all its parameters",
    differs=_unheld_differ,
)
def parameters_not_updated(difference: Difference) -> Finding | None:
    """Parameters that one run does not move, with a gradient or none but an optimizer that moves them nevertheless."""
    if difference.stage != "update" and not (difference.may_be_update and _unheld(difference)):
        return None
    moved = [lengths > 0 for lengths in difference.norms("update")]
    with_gradient = (difference.norms("gradient")[0] > 0) & (difference.norms("gradient")[1] > 0)
    held = difference.at("held")
    unheld = difference.named(held[0] ^ held[1])
    # A learning rate of zero moves nothing either, and other options another way: that is their doing.
    at_rest = facts.set_otherwise(difference) & ~(held[0] ^ held[1])
    visible = _seen_to_move(difference) & (not stored_otherwise(difference))
    lost = (moved[0] != moved[1]) & visible & with_gradient & ~at_rest
    odd = list(dict.fromkeys([*difference.named(lost), *_unheld(difference)]))
    if not odd:
        return None
    how = "the optimizer holds it but the update is lost"
    if set(unheld) & set(odd):
        how = "the optimizer does not hold it"
    here = not moved[0][difference.place(odd[0])]
    has, does = ("has", "does") if len(odd) == 1 else ("have", "do")
    why = f"{has} a gradient and " if set(odd) & set(difference.named(with_gradient)) else ""
    return Finding(
        f"{some(odd)} {why}{does} not move in {difference.who(bool(here))} ({how})",
        {"parameters": odd, "not_in_the_optimizer": sorted(unheld)},
    )
