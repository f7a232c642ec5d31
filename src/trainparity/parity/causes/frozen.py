"""Parameters that have a gradient in one run only."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import outputs_agree
from trainparity.parity.noise.distance import ALL, norms
from trainparity.parity.noise.floor import NOTHING_ELSE
from trainparity.parity.recording.names import INPUT
from trainparity.parity.steps.difference import Difference
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
    if others or len(odd) == len(names) or (not frozen and (_is_term_left_out(difference) or _is_flat(difference))):
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


def _is_flat(difference: Difference) -> bool:
    """Tell whether the loss of one run alone is flat, as a hinge that all samples satisfy: gradients are zeros."""
    left, right = (gradient != 0 for gradient in difference.norms("gradient"))
    if left.any() and right.any():
        return False
    missing = difference.at("rank/missing")[0 if right.any() else 1]
    return not bool((missing.all(0) & (left | right)).any())


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
    without = bool(left[difference.place(moved[0])])
    return Finding(
        f"{some(moved)} {'has' if len(moved) == 1 else 'have'} no gradient in {difference.who(without)}, and zeros as "
        f"one in {difference.who(not without)}, where the optimizer moves {'it' if len(moved) == 1 else 'them'}",
        {"parameters": moved},
    )
