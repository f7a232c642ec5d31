"""What both runs' forward and backward passes have in common: rules that place a difference rest on it."""

from collections import Counter

import torch
from torch import Tensor

from trainparity.parity.causes.batchnorm import rows_per_pass
from trainparity.parity.noise.distance import ALL, sketches
from trainparity.parity.recording.names import module_of
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.after_backward import AS_MADE, made_by_backward
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit


def same_start(difference: Difference) -> bool:
    """Tell whether the step begins with the same weights, for the same samples, in one number format."""
    if difference.stage != "gradient" or not difference.same_precision or difference.beyond["start"]:
        return False
    hashes = difference.pair("samples")
    return hashes is not None and torch.equal(*hashes)


def see_other_samples(difference: Difference) -> bool:
    """Tell whether the runs see other samples at the step, in whatever order."""
    hashes = difference.pair("samples")
    return hashes is not None and not torch.equal(*hashes)


def same_cut(difference: Difference) -> bool:
    """Tell whether both runs hand the samples to the model in passes of the same sizes."""
    left, right = (rows_per_pass(trace, difference.row) for trace in difference.traces)
    return left == right


def forward_passes(trace: Trace, row: int) -> Tensor:
    """Return how many forward passes with samples each rank makes: int64 [R]."""
    return (trace.arrays["rank/rows"][row] > 0).sum(1)


def passes_by_size(difference: Difference) -> tuple[Counter[int], Counter[int]]:
    """Return how many forward passes of each number of samples both runs make, over all ranks."""
    left, right = (Counter(trace.arrays["rank/rows"][difference.row].flatten().tolist()) for trace in difference.traces)
    del left[0], right[0]  # which fill up
    return left, right


def without_own_samples(difference: Difference) -> bool:
    """Tell whether one run alone passes only what another model made, as a discriminator that sees no real images."""
    (ours, theirs), made = difference.numbers("num_samples"), difference.numbers("made_elsewhere")
    return (ours == 0) != (theirs == 0) and all(made)


def one_passes_more_aside(difference: Difference) -> bool:
    """Tell whether one run has more passes that no backward pass comes through, as to measure accuracy."""
    aside = [
        int((forward_passes(trace, difference.row) - trace.arrays["rank/reached"][difference.row]).sum())
        for trace in difference.traces
    ]
    return aside[0] != aside[1]


def other_loss(difference: Difference, factor: float) -> bool:
    """Tell whether the loss differs by another factor than the gradient does: it is not scaled, but another.

    Near equal outputs, as a new model's, other losses have nearly multiples of one gradient: smoothed labels do.
    """
    ratio, chain = _of_losses(difference), difference.chain
    limit = _SAME_FACTOR_OF_SAME_BITS if chain.loss_is_exact else _SAME_FACTOR
    return ratio is not None and abs(ratio / factor - 1) > limit


def loss_times(difference: Difference, factor: float) -> bool:
    """Tell whether the loss has the reference's value times a factor, more exactly than another has by chance."""
    ratio = _of_losses(difference)
    return ratio is not None and abs(ratio / factor - 1) < _SAME_LOSS


def other_losses(difference: Difference) -> bool:
    """Tell whether the loss is known to have another value, by more than rounding makes of one of the same outputs."""
    ratio = _of_losses(difference)
    return ratio is not None and abs(ratio - 1) > _SAME_LOSS


def losses_agree(difference: Difference) -> bool:
    """Tell whether the loss is known to have about the same value in both runs."""
    losses = difference.pair("rank/loss")
    return losses is not None and bool(losses[0].any()) and torch.allclose(*losses, rtol=1e-3)


def _of_losses(difference: Difference) -> float | None:
    values = difference.pair("rank/loss")
    if values is None or not all(value.isfinite().all() and value.mean() for value in values):
        return None
    return float(values[1].mean() / values[0].mean())


_SAME_LOSS = 1e-4
"""How far the factor of a loss that is scaled may be from that of the gradient."""

_SAME_FACTOR = 0.05
"""How far the factor of the loss may be from that of the gradient."""


_SAME_FACTOR_OF_SAME_BITS = 0.005
"""The same where the outputs have the same bits, and their gradient is rounded where it is stored alone."""


def outputs_agree(difference: Difference) -> bool:
    """Tell whether the model returns the same from the same start, and the gradient by what it returns is recorded."""
    chain = difference.chain
    given_back = chain.judged or set(chain.outputs) & set(chain.one_sided)
    return same_start(difference) and bool(chain.outputs_agree) and bool(given_back)


def only_inside(difference: Difference) -> bool:
    """Tell whether runs part inside of the model: from one start it returns the same, and is given the same back."""
    chain = difference.chain
    return outputs_agree(difference) and bool(chain.judged) and not (chain.given_otherwise or chain.one_sided)


def without_gradient(difference: Difference, name: str) -> str:
    """Name the run in which no gradient comes back to an activation, where one does in the other."""
    left = difference.left
    sketch = left.arrays["activation_gradient/sketch"][difference.row][left.layout.activations.index(name)]
    return difference.who(not sketch.any())


def adds_up(trace: Trace, row: int) -> bool:
    """Tell whether the gradient is the mean over ranks of what their backward passes have made, or will become that."""
    micro, total = trace.arrays["rank/micro"][row], trace.arrays["rank/total"][row][0]
    if not micro.any() or int(trace.arrays["rank/backwards"][row].amax()) > micro.shape[1]:
        return True  # not all of them were kept
    left_over = fit(made_by_backward(trace, row), total)[1]
    return left_over <= max(1e-3, 16 * trace.layout.stored_roundoff) or own_alone(trace, row)


def own_alone(trace: Trace, row: int) -> bool:
    """Tell whether each rank's gradient is what its own backward passes have made, and not that of another rank."""
    made, total = trace.arrays["rank/micro"][row].sum(1), trace.arrays["rank/total"][row]
    if len(total) < 2 or not total.any() or bool((total == total[:1]).all()):
        return False
    apart = torch.linalg.vector_norm(total - made, dim=1)
    return bool((apart <= AS_MADE * torch.linalg.vector_norm(total, dim=1)).all())


def multiples_of_gradients(difference: Difference) -> dict[str, tuple[float, float]]:
    """Return the number that each parameter's gradient is the reference's times, and what is left over, by name."""
    left, right = (sketches(trace, "gradient")[difference.row] for trace in difference.traces)
    return {name: fit(*pair) for name, *pair in zip(difference.left.layout.parameters, left, right, strict=True)}


def parameters_beyond(difference: Difference) -> list[str]:
    """Return the parameters whose gradients are beyond the margin."""
    return [name for name in difference.beyond["gradient"] if name != ALL]


def own_gradients_agree(difference: Difference) -> bool | None:
    """Tell whether what backward passes made, before ranks average it, adds up to the same; None if not recorded."""
    own = difference.own_scale
    return None if own is None else own[1] <= max(difference.tolerance, 1e-5)


def backward_makes_equal(difference: Difference) -> bool:
    """Tell whether what backward passes made is the same, not only a multiple of it."""
    return own_gradients_agree(difference) is True and abs(difference.own_factor - 1) <= max(difference.tolerance, 1e-5)


EQUAL = ["weights before the step", "samples", "outputs of the model"]
"""What a finding of a loss, or of backward, has found equal."""


def count_of(difference: Difference, factor: float) -> str:
    """Name the count of ranks, micro-batches or samples that a factor is equal to, if there is one."""
    rows = difference.traces
    ranks = [trace.layout.world_size for trace in rows]
    passes = [int(trace.arrays["rank/backwards"][difference.row].amax()) for trace in rows]
    samples = max(difference.numbers("num_samples"))
    counts = {
        "the number of micro-batches": max(passes),
        "the number of ranks": max(ranks),
        "ranks times micro-batches": max(ranks) * max(passes),
        "the number of samples": int(samples),
        "samples of a micro-batch": int(samples) // max(1, max(passes) * max(ranks)),
    }
    for name, count in counts.items():
        for sign, text in ((1, f": {name}"), (-1, f": one over {name}")):
            if count > 1 and abs(factor / count**sign - 1) < SAME_COUNT:
                return text
    return ""


SAME_COUNT = 1e-2
"""How far a factor may be from a count."""


def ranks_hold_apart(difference: Difference, activation: str) -> bool:
    """Tell whether ranks of a run hold other numbers in what a module's output is made with, as experts."""
    apart = (trace.arrays.get("rank/weight_apart") for trace in difference.traces)
    names = {name for found in apart if found is not None for name in difference.named(found[difference.row] != 0)}
    return any(name.startswith(f"{module_of(activation)}.") for name in names)
