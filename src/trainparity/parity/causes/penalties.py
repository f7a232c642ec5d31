"""Terms of the loss that are made of weights or of gradients."""

import torch
from torch import Tensor

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import adds_up, loss_times, own_gradients_agree, parameters_beyond, same_start
from trainparity.parity.recording.names import module_of
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit
from trainparity.parity.steps.zero_weights import of_the_loss
from trainparity.records.names import some
from trainparity.records.numbers import exact


@rule(
    "loss-or-targets",
    "loss",
    proof="outputs and the gradient of the loss by them agree, and the gradients of parameters differ by a multiple of "
    "the weights, or of what these have moved by, or in all of them about in their direction: a term of the loss that "
    "takes the weights",
    advice="compare the terms of the loss that take the weights, such as an L2 or L1 penalty",
)
def weights_penalised(difference: Difference) -> Finding | None:
    """A norm of the weights is part of the loss, or weighs otherwise in it."""
    made = own_gradients_agree(difference) is False
    if not _outputs_agree_alone(difference) or not (made or all(adds_up(t, difference.row) for t in difference.traces)):
        return None
    alike = "the model returns the same, and the gradient of the loss by that agrees"
    start = difference.left.arrays["start/sketch"]
    row = difference.row
    for weights, what in ((start[row], "the weights"), (start[row] - start[0], "what the weights have moved by")):
        if (found := _multiple_of(weights, difference)) is not None:
            return Finding(
                f"the gradient of {difference.runs[1]} is that of {difference.runs[0]} and {exact(found[0], 4)} times "
                f"{what}, in {some(found[1])}; {alike}",
                {"factor": found[0], "parameters": found[1]},
            )
    if made and (cosines := _along_the_weights(difference)):
        return Finding(
            f"the gradient of {difference.runs[1]} differs from that of {difference.runs[0]} in the direction of the "
            f"weights, as by the signs of them, in {some(list(cosines))}; {alike}",
            {"cosines": list(cosines.values()), "parameters": list(cosines)},
        )
    return None


@rule(
    "loss-or-targets",
    "loss",
    proof="outputs and the gradient of the loss by them agree, backward passes are made that can be differentiated "
    "again, and the gradients of parameters differ: a term of the loss that is made of gradients",
    advice="compare the terms of the loss that are made of gradients, such as a gradient penalty, and their weight",
)
def gradients_penalised(difference: Difference) -> Finding | None:
    """A term of the loss is made of gradients, and weighs otherwise in it, or is in one run only."""
    made = [trace.layout.differentiable for trace in difference.traces]
    if not any(made) or not _outputs_agree_alone(difference) or own_gradients_agree(difference) is not False:
        return None
    return Finding(
        "the model returns the same in both runs, and the gradient of the loss by that agrees; the loss has a term "
        f"made of gradients (create_graph), which is another one in {difference.runs[1]}",
        {"differentiable_backward_passes": [float(one) for one in made], "parameters": difference.beyond["gradient"]},
    )


@rule(
    "loss-or-targets",
    "loss",
    proof="outputs and the gradient of the loss by them agree, and no parameters' gradients differ but of those that "
    "the loss takes by itself, as its autograd graph shows",
    advice="compare the terms of the loss that take the named parameters, as a temperature or a log-variance",
)
def taken_by_the_loss(difference: Difference) -> Finding | None:
    """A term of the loss that takes parameters by itself is another one."""
    names = parameters_beyond(difference)
    if not names or not set(names) <= of_the_loss(difference) or not _outputs_agree_alone(difference):
        return None
    through = any(trace.layout.differentiable for trace in difference.traces) or loss_times(difference, 1.0)
    if through and _of_modules_called(difference, names):
        return None  # it takes the gradient of these, which is made with the weights, or what lies inside of the model
    return Finding(
        "the model returns the same, and the gradient of the loss by that agrees; the loss takes "
        f"{some(names)} by itself, and {'its' if len(names) == 1 else 'their'} gradient is another one in "
        f"{difference.runs[1]}",
        {"parameters": names},
    )


def _of_modules_called(difference: Difference, parameters: list[str]) -> bool:
    """Tell whether one of some parameters belongs to a module that the model calls."""
    called = {module_of(name) for name in difference.left.layout.activations}
    return any(name.rpartition(".")[0] in called for name in parameters)


def _outputs_agree_alone(difference: Difference) -> bool:
    """Tell whether outputs and the gradient of the loss by them agree, and gradients of parameters do not."""
    chain = difference.chain
    if difference.stage != "gradient" or not chain.outputs_agree or not same_start(difference):
        return False
    return bool(chain.judged) and set(chain.judged).isdisjoint([*chain.backward, *chain.given_lost])


def _multiple_of(weights: Tensor, difference: Difference) -> tuple[float, list[str]] | None:
    """Return how often weights, or differences of them, are added to the gradients that differ; None if not so.

    And to which. A penalty on the distance from the weights that a run begins with is no multiple of these themselves
    (L2-SP, Li et al., 2018; EWC; FedProx).

    Args:
        weights: Their sketches, float64 [P, S].
        difference: Of the runs.
    """
    places = [i for i, name in enumerate(difference.left.layout.parameters) if name in difference.beyond["gradient"]]
    ours, theirs = (trace.arrays["gradient/sketch"][difference.row] for trace in difference.traces)
    found = [(place, *fit(weights[place], theirs[place] - ours[place])) for place in places if weights[place].any()]
    if not found or len(found) < len([place for place in places if ours[place].any()]):
        return None
    numbers = list(difference.left.layout.numbers().values())
    if all(numbers[place] == 1 for place, _, _ in found):
        return None  # any one number is a multiple of another
    factor = max((one for _, one, _ in found), key=abs)
    if any(rest > _PENALTY_LEFT_OVER or abs(one - factor) > _PENALTY_LEFT_OVER * abs(factor) for _, one, rest in found):
        return None
    names = list(difference.left.layout.parameters)
    return factor, [names[place] for place, _, _ in found]


_PENALTY_LEFT_OVER = 0.02
"""Part of a difference of gradients that may be something else than a multiple of the weights: rounding."""


_ALONG = 0.5
"""Cosine from which a difference goes along the weights: their signs have one of 0.8 with weights drawn at random.

From sketches it is known to 0.12, so a difference that has nothing to do with the weights reaches it once in 10,000
parameters, and never in all of several.
"""


def _along_the_weights(difference: Difference) -> dict[str, float]:
    """Return the cosines of what gradients differ by with the weights, by parameter; empty where that is not it."""
    names = list(difference.left.layout.parameters)
    found: dict[str, float] = {}
    for place in (place for place, name in enumerate(names) if name in difference.beyond["gradient"]):
        ours, theirs = (t.arrays["gradient/sketch"][difference.row][place] for t in difference.traces)
        weights = difference.left.arrays["start/sketch"][difference.row][place]
        found[names[place]] = float(torch.cosine_similarity(theirs - ours, weights, dim=0))
    along = len(found) > 1 and min(map(abs, found.values())) >= _ALONG
    return found if along and len({cosine > 0 for cosine in found.values()}) == 1 else {}
