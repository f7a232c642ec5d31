"""Parameters without a gradient, or that the optimizer does not move."""

from trainparity.parity.causes.finding import Finding, rule, some
from trainparity.parity.difference import Difference


@rule(
    "frozen-parameter",
    "backward",
    proof="parameters have a gradient in one run only, and all others agree",
    advice="leave requires_grad on, and do not detach what the parameter computes",
)
def frozen_parameter(difference: Difference) -> Finding | None:
    """Parameters that have a gradient in one run only, while the rest is right."""
    if difference.stage != "gradient":
        return None
    left, right = difference.norms("gradient")
    names = list(difference.left.layout.parameters)
    odd = [names[index] for index in ((left > 0) != (right > 0)).nonzero().flatten().tolist()]
    if not odd:
        return None
    others = [name for name in difference.beyond["gradient"] if name in names and name not in odd]
    if others or len(odd) == len(names):
        return None
    frozen = set(difference.left.layout.frozen) ^ set(difference.right.layout.frozen)
    how = "requires_grad is off" if frozen else "no gradient reaches it"
    return Finding(
        f"{some(odd)} has a gradient in one run only ({how})",
        {"parameters": odd, "requires_grad_differs": sorted(frozen)},
    )


@rule(
    "parameters-not-updated",
    "update",
    proof="a parameter has a gradient and does not move; whether the optimizer holds it",
    advice="make the optimizer after the model is moved, wrapped or sharded, from all its parameters",
)
def parameters_not_updated(difference: Difference) -> Finding | None:
    """Parameters with a gradient that one run does not move."""
    if difference.stage != "update":
        return None
    moved = [norms > 0 for norms in difference.norms("update")]
    with_gradient = (difference.norms("gradient")[0] > 0) & (difference.norms("gradient")[1] > 0)
    names = list(difference.left.layout.parameters)
    unheld = set(difference.left.layout.unoptimised) ^ set(difference.right.layout.unoptimised)
    rates = difference.pair("setting/lr")
    # A learning rate of zero moves nothing either; that is the schedule's doing.
    at_rest = [
        name not in unheld and rates is not None and float(min(r[i] for r in rates)) == 0
        for i, name in enumerate(names)
    ]
    rows = ((moved[0] != moved[1]) & with_gradient).nonzero().flatten().tolist()
    odd = [names[index] for index in rows if not at_rest[index]]
    if not odd:
        return None
    how = "the optimizer does not hold it" if unheld & set(odd) else "the optimizer holds it but the update is lost"
    return Finding(
        f"{some(odd)} has a gradient and does not move in one run ({how})",
        {"parameters": odd, "not_in_the_optimizer": sorted(unheld)},
    )
