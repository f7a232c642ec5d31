"""The same gradient of the outputs becomes another one on its way back."""

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.loss import tolerance_of
from trainparity.parity.causes.passes import (
    EQUAL,
    adds_up,
    losses_agree,
    multiples_of_gradients,
    other_losses,
    outputs_agree,
    own_gradients_agree,
    parameters_beyond,
    same_cut,
    without_gradient,
)
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import made
from trainparity.parity.steps.after_backward import kept_after_backward
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some
from trainparity.records.numbers import exact


@rule(
    "backward",
    "backward",
    proof="outputs of the model agree, and the gradient of the loss by them, and a gradient that backward makes "
    "from there does not",
    advice="look for a detach, a hook on gradients or a custom autograd function between the named module and the next",
)
def backward(difference: Difference) -> Finding | None:
    """The same gradient of the outputs becomes another one on its way back."""
    chain = difference.chain
    if not outputs_agree(difference):
        return None
    unused = [name for name in chain.one_sided if not chain.outputs or name in chain.outputs]
    if unused and not chain.outputs and losses_agree(difference):
        return _cut_off(difference, unused)
    if set(chain.judged) & set(chain.backward) or unused:
        return None  # the loss makes less of what it is given
    off = made(chain.backward or chain.parts_on_the_way_back)
    scaled = abs(difference.own_factor / chain.factor - 1) > tolerance_of(difference)
    if not off and not scaled and own_gradients_agree(difference) is not False:
        return _changed_later(difference)
    parameters = parameters_beyond(difference)
    if off:
        where, advice = f"the gradient of the output of {off[-1]}", ""
    else:
        where = f"the gradient of {parameters[-1] if parameters else 'a parameter'}, though those of all outputs agree,"
        advice = (
            "compare how forward uses the named weights, as by an adapter's scale; look for a term of the loss that "
            "takes the weights themselves, a hook on them, or a custom function"
        )
    return Finding(
        f"{where} differs in {difference.runs[1]} from {difference.runs[0]}; the model returns the same, and the "
        "gradient of the loss by that agrees",
        {"modules": off, "parameters": parameters, "equal": [*EQUAL, "gradients of the outputs"]},
        advice,
    )


def inner_factors(difference: Difference) -> dict[str, float]:
    """Return by which number gradients are multiplied behind outputs, and a gradient of these, of the same bits.

    In a coarse format, where the floor hides it: rounding otherwise leaves as much of such a gradient over as it turns.
    """
    if not is_coarse(difference.left.layout) or not difference.same_precision or difference.distance("start"):
        return {}
    chain = difference.chain
    if not chain.judged or chain.other_bits or not chain.given_same_bits or not same_cut(difference):
        return {}
    if set(chain.outputs) & set(chain.one_sided):
        return {}  # a loss of fewer outputs
    kept = [kept_after_backward(trace, difference.row) for trace in difference.traces]
    if not all(kept) or abs(kept[1] / kept[0] - 1) > _AS_KEPT:
        return {}  # code of the loop's own scales it afterwards
    units = max(trace.layout.unit_roundoff for trace in difference.traces)
    numbers = difference.left.layout.numbers()
    return {
        name: factor
        for name, (factor, rest) in multiples_of_gradients(difference).items()
        if numbers[name] >= _NUMBERS and abs(factor - 1) > _TIMES * max(rest, units)
    }


_AS_KEPT = 1e-3
"""Part by which runs may differ in what they keep of the gradients that backward makes."""

_TIMES = 4
"""How many times further from 1 than rounding leaves over: right runs lay at 0.9, a scale of 15 for 16 at 16."""

_NUMBERS = 32
"""Numbers of a parameter of which no factor explains much by chance."""


def _is_scaled_inside(difference: Difference) -> bool:
    return bool(inner_factors(difference))


@rule(
    "backward",
    "backward",
    proof="in a coarse format outputs and the gradient of the loss by them have the same bits, and gradients of "
    "parameters are the reference's times a number",
    advice="compare how forward scales what the named weights make, as that of an adapter, and hooks on them",
    differs=_is_scaled_inside,
)
def scaled_inside(difference: Difference) -> Finding | None:
    """A factor inside of the model, which weights that are still zero hide in its outputs."""
    found = inner_factors(difference)
    if not found or other_losses(difference):
        return None
    first = next(reversed(found))
    return Finding(
        f"the gradient of {some(list(found))} is {exact(found[first], 4)} times in {difference.runs[1]} what it is in "
        f"{difference.runs[0]}; what modules return and the gradient of the loss by that have the same bits",
        {"parameters": list(found), "factors": list(found.values()), "equal": [*EQUAL, "gradients of the outputs"]},
    )


def _cut_off(difference: Difference, modules: list[str]) -> Finding:
    """Tell of modules to which the loss, which has the same value, hands no gradient in one run."""
    where = without_gradient(difference, modules[-1])
    return Finding(
        f"the loss has the same value in both runs, and in {where} no gradient of it comes back to {some(modules)}",
        {"modules": modules, "equal": EQUAL},
        "look for a detach, or for no_grad, between the named modules and the loss",
    )


def _changed_later(difference: Difference) -> Finding | None:
    """Find gradients that are not what backward passes have made: something changes them before they are applied."""
    if max(difference.numbers("closure/again")):
        return None
    changed = [not adds_up(trace, difference.row) for trace in difference.traces]
    names = parameters_beyond(difference)
    if changed[0] == changed[1] or not names:
        return None
    return Finding(
        f"in {difference.who(changed[0])} the gradient of {names[-1]} is changed after backward has made it; what "
        "backward makes agrees",
        {"parameters": names, "equal": [*EQUAL, "gradients of the outputs", "what each backward pass adds"]},
        "look for hooks on parameters, and for code between backward and the update",
    )
