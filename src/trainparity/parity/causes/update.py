"""An update that is another one, of the same gradients or of gradients that the loop makes elsewhere."""

import torch

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import backward_makes_equal
from trainparity.parity.noise.distance import ALL, names
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.updates import parted_before
from trainparity.records.names import some
from trainparity.records.numbers import exact

_APPLIED = 0.02
"""Part of their norm by which gradients may differ as they are applied, where another update is claimed."""

_AMPLIFIED = 16
"""How many times further than its gradient an update may be apart for that alone, as where Adam's signs change."""


def _more_than_its_gradient(difference: Difference, moved: list[str]) -> bool:
    """Tell whether an update is apart by what the distance of its gradient, within the floor, does not make."""
    traces = difference.traces
    if any(bool(trace.arrays["rank/clip_norm"][difference.row].isnan().any()) for trace in traces):
        return difference.distance("gradient") == 0  # where each value is cut, applied gradients differ otherwise
    columns = [names(difference.left, "update").index(name) for name in moved]
    of_update, of_gradient = (difference.distances(kind)[difference.row, columns] for kind in ("update", "gradient"))
    return bool((of_update > _AMPLIFIED * of_gradient).any())


@rule(
    "update",
    "update",
    proof="one run alone passes samples of the step again with weights that it has moved, as SAM does",
    advice="make the update in as many evaluations in both runs",
)
def evaluated_again(difference: Difference) -> Finding | None:
    """The gradient is that of moved weights in one run."""
    again = difference.numbers("closure/again")
    if again[0] == again[1]:
        return None
    return Finding(
        f"{difference.who(bool(again[0]))} moves the weights within the step and passes its samples again, and "
        f"{difference.who(not again[0])} does not",
        {"evaluated_again": list(again)},
    )


@rule(
    "update",
    "update",
    proof="both do, what backward makes first agrees, and the gradient of the moved weights does not",
    advice="compare how far the weights are moved before later evaluations, as SAM's `rho` or an inner learning "
    "rate says, how many of these are made, of which samples, and the loss that is made there",
)
def moved_otherwise(difference: Difference) -> Finding | None:
    """The first evaluations agree, and the second ones do not."""
    if difference.stage != "gradient" or not all(difference.numbers("closure/again")):
        return None
    if not backward_makes_equal(difference) or not difference.chain.outputs_agree:
        return None
    return Finding(
        f"both runs move the weights within the step and evaluate again; the first evaluation's gradient agrees, and "
        f"that of the moved weights does not in {difference.runs[1]}",
        {"equal": [f"{what} of the first evaluation" for what in ("weights", "samples", "outputs", "gradient")]},
    )


@rule(
    "update",
    "update",
    proof="in a coarse format, in an earlier step, weights have the same bits, gradients agree, and the updates are "
    "apart: what they have made since then may be within the floor",
    advice="compare the code of both optimizers' `step`, the number format that it computes in, and hooks on it",
)
def other_update_before(difference: Difference) -> Finding | None:
    """Updates have been others since an earlier step, which shows in what the weights make."""
    row = parted_before(difference) if difference.stage == "gradient" else None
    if row is None:
        return None
    step, apart = difference.left.layout.steps[row], float(difference.distances("update")[row, -1])
    return Finding(
        f"{difference.runs[1]} makes another update than {difference.runs[0]} since step {step}: there weights have "
        f"the same bits, gradients agree, and updates are {exact(apart, 2)} of their length apart",
        {"since": step, "distance_of_updates": apart, "optimizers": facts.classes(difference)},
    )


@rule(
    "optimizer-state",
    "update",
    proof="PyTorch's own code makes the same updates up to a step, and then another one of the same gradients with the "
    "same options: what it keeps was changed between two steps",
    advice="restore the optimizer's state as it was saved: each tensor for its own parameter, in its own format",
)
def kept_otherwise(difference: Difference) -> Finding | None:
    """A moment that is restored otherwise in mid-run, where the length of all that is kept does not tell."""
    classes, kept = facts.classes(difference), facts.state_norms(difference)
    if not all(map(_made_by_torch, difference.traces)) or not difference.goes_on or classes[0] != classes[1]:
        return None
    # A gradient of zeros ages what is kept of its parameter, and none leaves it as it is.
    lately = slice(difference.row - 1, difference.row + 1)
    trained = torch.stack([(trace.arrays["gradient/norm"][lately] > 0).all(0) for trace in difference.traces]).all(0)
    moved = _updated_otherwise(difference)
    if not min(kept) or not moved or not set(moved) <= set(difference.named(trained)):
        return None
    return Finding(
        f"up to step {difference.left.layout.steps[difference.row - 1]} both runs make the same updates, and at step "
        f"{difference.step} others of the same gradients with the same options: what {classes[0]} keeps of "
        f"{some(moved)} was changed in between",
        {"parameters": moved, "norm_of_the_state": kept},
    )


def _made_by_torch(trace: Trace) -> bool:
    """Tell whether PyTorch's own code alone makes the updates, all of one class."""
    layout = trace.layout
    return layout.without_limit and not layout.optimizers and not layout.hooked


@rule(
    "update",
    "update",
    proof="weights before the step, gradients as they are applied, options, state and class of the optimizer agree, "
    "and the update does not",
    advice="compare the code of both optimizers' `step`, the number format that it computes in, and hooks on it",
)
def other_update(difference: Difference) -> Finding | None:
    """The same optimizer makes another update of the same gradients."""
    if not (moved := _updated_otherwise(difference)):
        return None
    return Finding(
        f"{difference.runs[1]} makes another update than {difference.runs[0]} of the same gradients with the same "
        f"options: {some(moved)}",
        {"parameters": moved, "optimizers": facts.classes(difference)},
    )


def _updated_otherwise(difference: Difference) -> list[str]:
    """Return the parameters whose update is another one of the same gradient; none where that is not so."""
    applied = difference.pair("applied/norm")
    if difference.stage != "update" or difference.beyond["start"] or applied is None or not applied[0].any():
        return []
    apart = torch.linalg.vector_norm(applied[0] - applied[1])
    if not float(apart) <= min(difference.tolerance, _APPLIED) * float(torch.linalg.vector_norm(applied[0])):
        return []  # something else has changed the gradients
    moved = [name for name in difference.beyond["update"] if name != ALL] or difference.beyond["weight"]
    if not _more_than_its_gradient(difference, moved) or _of_other_zeros(difference, moved):
        return []
    return moved


def _of_other_zeros(difference: Difference, names: list[str]) -> bool:
    """Tell whether a gradient has zeros in one run alone, as of a term that the loss lacks, however small it is.

    Adam makes as much of a small number as of a large one.
    """
    there = [levels.sum(-1) for levels in difference.at("gradient/levels")]
    return bool(set(difference.named((there[0] - there[1]).abs() > _ZEROS)) & set(names))


_ZEROS = 0.1
"""Part of a gradient's numbers that rounding does not make zero."""
