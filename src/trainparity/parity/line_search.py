"""Optimizers that evaluate the loss as often as its values ask for, as with a line search."""

from trainparity.parity.causes.facts import options
from trainparity.parity.steps.difference import Difference

_ROUNDED = 4
"""Floors within which what an optimizer is given differs by rounding alone."""


def line_search_parts(difference: Difference) -> str | None:
    """Say that rounding may have decided how often a step evaluates the loss; None where that explains nothing.

    It stops where values fulfil a condition, which twins need not meet as closely as another right run does.
    """
    made, rates = difference.numbers("closure/evaluations"), difference.pair("setting/lr")
    if made[0] == made[1] or min(made) < 1 or difference.stage != "update" or difference.beyond["start"]:
        return None
    classes = difference.left.layout.optimizer, difference.right.layout.optimizer
    same = (
        classes[0] == classes[1]
        and not options(difference)
        and rates is not None
        and bool((rates[0] == rates[1]).all())
    )
    near = difference.distance("gradient") <= _ROUNDED * difference.noise("gradient")
    clipped = difference.numbers("clip/calls")
    if not same or not near or clipped[0] != clipped[1]:
        return None
    return (
        f"in step {difference.step} {classes[0]} evaluates the loss {made[0]:g} times in {difference.runs[0]} and "
        f"{made[1]:g} times in {difference.runs[1]}, given the same gradient: rounding may decide that"
    )
