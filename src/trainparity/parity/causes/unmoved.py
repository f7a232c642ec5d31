"""Parameters without a gradient, or that the optimizer does not move."""

import torch
from torch import Tensor

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import outputs_agree
from trainparity.parity.causes.precision import stored_otherwise
from trainparity.parity.difference import Difference
from trainparity.parity.distance import ALL, norms, stored_rounding
from trainparity.parity.floor import NOTHING_ELSE
from trainparity.parity.recording.names import INPUT
from trainparity.parity.recording.trace import Trace
from trainparity.records.names import some


def _frozen(difference: Difference) -> list[str]:
    """Return the parameters that are frozen in one run, and that the other one trains."""
    frozen = difference.at("frozen")
    if torch.equal(*frozen):  # as in nearly every step
        return []
    gradients, updates = difference.norms("gradient"), difference.norms("update")
    trained = [
        held & ~still & ((gradient != 0) | (update != 0))
        for held, still, gradient, update in zip(difference.at("held"), frozen, gradients, updates, strict=True)
    ]
    return difference.named((frozen[0] & trained[1]) | (frozen[1] & trained[0]))


def _gone(difference: Difference) -> list[str]:
    """Return the parameters without a gradient in one run alone, and for the rest of the steps: no rounding does so.

    In a long run in a coarse format its noise floor may excuse even that. In a step or two it may be so, as that of an
    expert is to which no token is sent.
    """
    left, right = difference.norms("gradient")
    if torch.equal(left == 0, right == 0):  # as in nearly every step
        return []
    lengths = [norms(trace, "gradient")[difference.row :] for trace in difference.traces]
    ours, theirs = (each == 0 for each in lengths)
    if len(ours) < _FOR_GOOD:
        return []
    large = [(each > _LARGE * torch.linalg.vector_norm(each, dim=1, keepdim=True)).all(0) for each in lengths]
    more_than_rounding = difference.floor["gradient"][difference.row, :-1] < NOTHING_ELSE
    none = [trace.arrays["rank/missing"][difference.row :].all(1) for trace in difference.traces]
    more_than_rounding |= (none[0].all(0) & ~none[1].any(0)) | (none[1].all(0) & ~none[0].any(0))
    return difference.named(((ours.all(0) & large[1]) | (theirs.all(0) & large[0])) & more_than_rounding)


_FOR_GOOD = 3
"""Steps to the end of a run from which on a gradient is gone for good."""

_LARGE = 1e-3
"""Part of the whole gradient from which on one does not come and go with rounding."""


def _frozen_differ(difference: Difference) -> bool:
    return bool(_frozen(difference)) or bool(_gone(difference))


@rule(
    "parameters-not-updated",
    "update",
    proof="several optimizers take turns, and one of them makes more steps between two of another's",
    advice="call the step of every optimizer in every iteration",
)
def steps_left_out(difference: Difference) -> Finding | None:
    """An optimizer that makes no step while another one does."""
    sequence, row = difference.pair("sequence"), difference.row
    if sequence is None or int(sequence[0]) == int(sequence[1]):
        return None
    steps = difference.left.layout.steps
    if not row or steps[row] != steps[row - 1] + 1:
        return None  # nobody knows how many were made in between
    before = [int(trace.arrays["sequence"][row - 1]) for trace in difference.traces]
    between = [int(now) - then - 1 for now, then in zip(sequence, before, strict=True)]
    if between[0] == between[1]:
        return None
    return Finding(
        f"before its step {difference.step} the other optimizers make {between[0]} steps in {difference.runs[0]} and "
        f"{between[1]} in {difference.runs[1]}",
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
    """Return the parameters with a gradient in both runs that one optimizer alone holds, and that it alone moves."""
    held = difference.at("held")
    if torch.equal(*held):  # as in nearly every step
        return []
    gradients, moved = difference.norms("gradient"), [lengths > 0 for lengths in difference.norms("update")]
    odd = (held[0] & ~held[1] & moved[0] & ~moved[1]) | (held[1] & ~held[0] & moved[1] & ~moved[0])
    return difference.named(odd & (gradients[0] > 0) & (gradients[1] > 0))


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
    holds = bool(difference.at("held")[0][list(difference.left.layout.parameters).index(names[0])])
    return Finding(
        f"{some(names)} {'starts' if len(names) == 1 else 'start'} from other values in {difference.who(not holds)}, "
        f"where the optimizer does not hold {'it' if len(names) == 1 else 'them'}, as of a layer that is made after it",
        {"parameters": names, "distance": difference.distance("start")},
    )


@rule(
    "frozen-parameter",
    "backward",
    proof="parameters have a gradient in one run only, and all others agree",
    advice="leave requires_grad on, and do not detach what the parameter computes",
    differs=_frozen_differ,
)
def frozen_parameter(difference: Difference) -> Finding | None:
    """Parameters that have a gradient in one run only, while the rest is right."""
    # Where modules return something else, a weight may be given zeros: its gradient is zero, and it trains.
    frozen_in_one = _frozen(difference)
    seen_to_end = difference.stage == "gradient" or bool(_gone(difference))
    if not frozen_in_one and (_returns_otherwise(difference) or not seen_to_end):
        return None
    left, right = difference.norms("gradient")
    names = list(difference.left.layout.parameters)
    seen = [names[index] for index in ((left != 0) != (right != 0)).nonzero().flatten().tolist()]  # NaN is one, too
    ignored = difference.named(~torch.logical_or(*difference.at("held")))
    odd = [name for name in dict.fromkeys((*seen, *frozen_in_one)) if name not in ignored]
    if not odd:
        return None
    others = [name for name in difference.beyond["gradient"] if name in names and name not in odd]
    frozen = difference.named(torch.logical_xor(*difference.at("frozen")))
    if others or len(odd) == len(names) or (not frozen and _is_term_left_out(difference)):
        return None
    how = "requires_grad is off" if frozen else "no gradient reaches it"
    has = left[names.index(odd[0])] > 0 or bool(difference.at("frozen")[1][names.index(odd[0])])
    return Finding(
        f"{some(odd)} {'has' if len(odd) == 1 else 'have'} a gradient in {difference.who(bool(has))} only ({how} in "
        f"{difference.who(not has)})",
        {"parameters": odd, **({"requires_grad_differs": frozen} if frozen else {})},
    )


def _returns_otherwise(difference: Difference) -> bool:
    """Tell whether modules return something else; one that is given features in one run is not seen given the data."""
    chain = difference.chain
    return not all(name.startswith(INPUT) for name in chain.forward) or bool(chain.forward and not chain.outputs_agree)


def _is_term_left_out(difference: Difference) -> bool:
    """Tell whether the loss of one run leaves out what the model returns besides: what made that is not to blame."""
    chain = difference.chain
    return bool(chain.judged and set(chain.outputs) & set(chain.one_sided) and outputs_agree(difference))


@rule(
    "frozen-parameter",
    "update",
    proof="parameters have no gradient in one run and one of zeros in the other, where decay moves them",
    advice="leave requires_grad on, and do not detach what the parameter computes",
)
def none_for_zeros(difference: Difference) -> Finding | None:
    """Parameters that an optimizer passes by in one run alone, as they have no gradient there: not even zeros."""
    if difference.stage != "update":
        return None
    left, right = (missing.all(0) for missing in difference.at("rank/missing"))
    zero = [gradient == 0 for gradient in difference.norms("gradient")]
    odd = difference.named((left ^ right) & zero[0] & zero[1])
    moved = [name for name in difference.beyond["update"] if name != ALL]
    if not moved or not set(moved) <= set(odd):
        return None
    without = bool(left[list(difference.left.layout.parameters).index(moved[0])])
    return Finding(
        f"{some(moved)} {'has' if len(moved) == 1 else 'have'} no gradient in {difference.who(without)}, and zeros as "
        f"one in {difference.who(not without)}, where the optimizer moves {'it' if len(moved) == 1 else 'them'}",
        {"parameters": moved},
    )


def _more_than_rounding(trace: Trace, row: int) -> Tensor:
    """Return the parameters whose update a run that makes half of it would not round away: bool [P].

    Weights in bf16 take no update that is less than half of their last place.
    """
    return norms(trace, "update")[row] > 2 * stored_rounding(trace)[row]


@rule(
    "parameters-not-updated",
    "update",
    proof="gradients differ of those parameters alone that one optimizer does not hold, and neither moves nor zeroes",
    advice="make the optimizer after the model is moved, wrapped or sharded, from all its parameters",
)
def neither_moved_nor_zeroed(difference: Difference) -> Finding | None:
    """Parameters that an optimizer does not hold, where its `zero_grad` leaves what another loss gave them."""
    names, off = _unheld(difference), [name for name in difference.beyond["gradient"] if name != ALL]
    if difference.stage != "gradient" or not off or not set(off) <= set(names):
        return None
    holds = bool(difference.at("held")[0][list(difference.left.layout.parameters).index(off[0])])
    return Finding(
        f"the optimizer of {difference.who(not holds)} does not hold {some(names)}: it moves none of them, and its "
        "`zero_grad` leaves their gradients",
        {"parameters": names},
    )


@rule(
    "parameters-not-updated",
    "update",
    proof="a parameter has a gradient and does not move, by more than its format rounds away; whether the optimizer "
    "holds it",
    advice="make the optimizer after the model is moved, wrapped or sharded, from all its parameters",
    differs=_unheld_differ,
)
def parameters_not_updated(difference: Difference) -> Finding | None:
    """Parameters with a gradient that one run does not move."""
    if difference.stage != "update" and not (difference.may_be_update and _unheld(difference)):
        return None
    moved = [lengths > 0 for lengths in difference.norms("update")]
    seen = torch.stack([_more_than_rounding(trace, difference.row) for trace in difference.traces]).any(0)
    with_gradient = (difference.norms("gradient")[0] > 0) & (difference.norms("gradient")[1] > 0)
    held = difference.at("held")
    unheld = difference.named(held[0] ^ held[1])
    # A learning rate of zero moves nothing either, and other options another way: that is their doing.
    at_rest = facts.set_otherwise(difference) & ~(held[0] ^ held[1])
    lost = (moved[0] != moved[1]) & seen & with_gradient & (not stored_otherwise(difference)) & ~at_rest
    odd = list(dict.fromkeys([*difference.named(lost), *_unheld(difference)]))
    if not odd:
        return None
    how = "the optimizer holds it but the update is lost"
    if set(unheld) & set(odd):
        how = "the optimizer does not hold it"
    here = not moved[0][list(difference.left.layout.parameters).index(odd[0])]
    return Finding(
        f"{some(odd)} {'has a gradient and does' if len(odd) == 1 else 'have a gradient and do'} not move in "
        f"{difference.who(bool(here))} ({how})",
        {"parameters": odd, "not_in_the_optimizer": sorted(unheld)},
    )
