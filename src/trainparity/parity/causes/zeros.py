"""Another forward pass that weights, or outputs, of zero hide in what the model returns."""

from trainparity.parity.causes.backward import inner_factors
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import EQUAL, backward_makes_equal, parameters_beyond, same_start
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.hidden_passes import given_otherwise, parted_at_weights
from trainparity.parity.steps.zero_weights import silent, without_effect
from trainparity.records.names import some
from trainparity.records.numbers import exact


@rule(
    "forward",
    "forward",
    proof="in a coarse format outputs and the gradient of the loss by them have the same bits, and only gradients of "
    "weights that are zero are the reference's times a number",
    advice="compare how both runs' forward scales what the named weights make, as an adapter's",
)
def scaled_by_zeros(difference: Difference) -> Finding | None:
    """A factor of what weights of zero make, which rounding would hide."""
    found = inner_factors(difference)
    if not found or not set(found) <= without_effect(difference):
        return None
    names = list(found)
    return Finding(
        f"what {some(names)} make differs in {difference.runs[1]} from {difference.runs[0]}: these weights are zero "
        f"and hide it in the output, not in their gradient, which is {exact(found[names[-1]], 4)} times as large",
        {"parameters": names, "factors": list(found.values()), "equal": [*EQUAL, "gradients of the outputs"]},
    )


@rule(
    "forward",
    "forward",
    proof="outputs and what comes back to them agree, and only weights that are zero, which hide in their output what "
    "they are given, get another gradient",
    advice="compare what both runs' forward computes in front of the named module, and an adapter's scale",
)
def hidden_by_zeros(difference: Difference) -> Finding | None:
    """What weights of zero are given, or what is made with them, differs, which shows in their gradient alone."""
    chain = difference.chain
    parameters = parameters_beyond(difference) or parted_at_weights(difference)
    if not parameters or not same_start(difference) or not chain.outputs_agree:
        return None
    if chain.backward or given_otherwise(difference) or not set(parameters) <= without_effect(difference):
        return None
    if difference.distance("gradient") > difference.tolerance and backward_makes_equal(difference):
        return None  # something changes them after backward
    return Finding(
        f"what {parameters[0].removesuffix('.weight')} is given, or makes of it, differs in {difference.runs[1]} from "
        f"{difference.runs[0]}: these weights are zero and hide it in the output, not in their gradient",
        {"parameters": parameters, "equal": [*EQUAL, "gradients of the outputs"]},
    )


@rule(
    "forward",
    "forward",
    proof="outputs and the gradient of the loss by them agree, and only what modules return that is all zeros is given "
    "another gradient",
    advice="compare what both runs' forward computes behind the named module: an adapter's scale, a gate",
)
def hidden_behind_zeros(difference: Difference) -> Finding | None:
    """What is made of a module's output differs, which zeros there hide in all but their gradient."""
    chain = difference.chain
    if not same_start(difference) or not chain.outputs_agree or given_otherwise(difference) or chain.one_sided:
        return None
    if not chain.backward or not set(chain.backward) <= set.intersection(*silent(difference)):
        return None
    return Finding(
        f"what is made of the output of {chain.backward[-1]} differs in {difference.runs[1]} from "
        f"{difference.runs[0]}: that is zero in this step and hides it in what the model returns, not on the way back",
        {"modules": chain.backward, "equal": [*EQUAL, "gradients of the outputs"]},
    )
