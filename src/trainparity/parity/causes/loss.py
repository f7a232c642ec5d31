"""A loss that is divided by another number, or weighs its micro-batches otherwise."""

import torch

from trainparity.parity.causes.batchnorm import sizes
from trainparity.parity.causes.by_hand import scaled_always
from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.passes import SAME_COUNT, adds_up, count_of, loss_times, other_loss, same_cut, same_start
from trainparity.parity.noise.distance import sketches
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.after_backward import kept_after_backward
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.hidden_passes import given_otherwise
from trainparity.records.numbers import exact


@rule(
    "loss-normalisation",
    "loss",
    proof="the gradient is the reference's times one number, in every parameter (of more than one number, or by a "
    "count of samples, micro-batches or ranks), and so is that of equal outputs, where backward made it",
    advice="divide the summed loss once by the number of samples (or tokens) of the whole global batch",
)
def scaled(difference: Difference) -> Finding | None:
    """The whole gradient is the reference's times one number: a missing or another division of the loss."""
    factor, rest = difference.scale
    if (
        factor < 0
        or difference.stage != "gradient"
        or rest > tolerance_of(difference)
        or abs(factor - 1) <= tolerance_of(difference)
    ):
        return None
    if (
        not _in_every_parameter(difference, factor)
        or not _seen_at_the_outputs(difference, factor)
        or (_one_number(difference) and not count_of(difference, factor))
    ):
        return None
    changed = [kept_after_backward(trace, difference.row) for trace in difference.traces]
    left, right = difference.left, difference.right
    evidence: Evidence = {
        "factor": factor,
        "left_over": rest,
        "cosine": float((1 - min(rest, 1) ** 2) ** 0.5) * (1 if factor > 0 else -1),
        "backward_passes": [float(t.arrays["rank/backwards"][difference.row].amax()) for t in (left, right)],
        "ranks": [float(t.layout.world_size) for t in (left, right)],
        "scaled_after_backward": changed,
    }
    if _unexplained_rescaling(difference, changed):
        return None
    return Finding(
        f"the gradient of {difference.runs[1]} is {exact(factor)} times that of {difference.runs[0]} in every parameter"
        f"{count_of(difference, factor)}",
        evidence,
    )


@rule(
    "loss-or-targets",
    "loss",
    proof="the gradient is the reference's times a negative number, in every parameter",
    advice="look for the sign of the loss: a score that is to grow is minimised, or a loss is maximised; and for "
    "labels of two classes that are exchanged",
)
def turned(difference: Difference) -> Finding | None:
    """The whole gradient points the other way: the loss has the other sign."""
    factor, rest = difference.scale
    if factor >= 0 or difference.stage != "gradient" or rest > min(tolerance_of(difference), _MOSTLY):
        return None
    what = "in every parameter: the loss has the other sign, or targets that are turned round"
    if _one_number(difference):
        what = "in the only number that is trained: the losses pull it opposite ways"
    return Finding(
        f"the gradient of {difference.runs[1]} is {exact(factor)} times that of {difference.runs[0]} {what}",
        {"factor": factor, "left_over": rest},
    )


def _in_every_parameter(difference: Difference, factor: float) -> bool:
    """Tell whether each parameter's gradient is the reference's times a number, as nearly as its own floor can tell."""
    left, right = (sketches(trace, "gradient")[difference.row] for trace in difference.traces)
    lengths = torch.linalg.vector_norm(factor * left, dim=1)
    apart = torch.linalg.vector_norm(right - factor * left, dim=1)
    noise = difference.margin * difference.floor["gradient"][difference.row, :-1]
    return bool((apart <= noise.clamp(min=tolerance_of(difference)) * lengths).all())


def _seen_at_the_outputs(difference: Difference, factor: float) -> bool:
    """Tell whether the loss can have been scaled: the gradient of equal outputs must show it too."""
    chain = difference.chain
    if _averaged_over_ranks(difference, factor) or _scaled_after_backward(difference, factor):
        return True
    if chain.judged and _is(factor, chain.factor) and _is_another(difference, factor):
        return False  # a preference's steeper sigmoid, where the policy is its own reference still
    if chain.judged and not chain.other_bits and chain.given_same_bits and _is(factor, difference.own_factor):
        return False  # backward makes it of the same gradient, as behind an adapter whose last weights are still zero
    counted = bool(count_of(difference, factor))  # such as gradients that are summed over ranks by hand
    if is_coarse(difference.left.layout) and not counted and other_loss(difference, factor):
        return False
    if not chain.judged or not same_cut(difference) or not all(adds_up(t, difference.row) for t in difference.traces):
        return True
    if all(trace.layout.differentiable for trace in difference.traces):
        return True  # outputs have gradients that a penalty is made of, too, which no loss scales
    of_outputs = _is(factor, chain.factor)
    if not is_coarse(difference.left.layout):
        # Outputs that are nearly one number, as a new discriminator's, are given nearly a multiple by another loss.
        other = bool(set(chain.judged) & set(chain.backward))
        other |= _all_zero(difference) and not loss_times(difference, factor)
        # A factor inside of the model, as of an adapter whose last weights are still zero, is made by backward.
        other |= not of_outputs and (bool(chain.backward) or _is(factor, difference.own_factor))
        return counted or not chain.outputs_agree or not other
    bent = chain.bent and not chain.touched
    return counted or (not bent and of_outputs)


def _scaled_after_backward(difference: Difference, factor: float) -> bool:
    """Tell whether loops multiply what backward has made, one by that factor more than the other: no loss shows it."""
    kept = [kept_after_backward(trace, difference.row) for trace in difference.traces]
    if difference.chain.given_otherwise or not all(kept) or abs(factor - 1) <= _SAME_FACTOR:
        return False
    return abs(kept[1] / kept[0] / factor - 1) < _SAME_FACTOR / 2


def _is_another(difference: Difference, factor: float) -> bool:
    """Tell whether the loss itself is not scaled by what its gradient is; unknown of one that other models' are in."""
    others = max(*difference.numbers("made_elsewhere"), *difference.numbers("judged_elsewhere"))
    return not others and other_loss(difference, factor)


def _averaged_over_ranks(difference: Difference, factor: float) -> bool:
    """Tell whether ranks compute one and the same loss, as of features of all of them, and average its gradient.

    Each has that of its own samples alone, so that all that reaches the model through these is divided by the ranks.
    """
    ranks = [trace.layout.world_size for trace in difference.traces]
    coupled = all(trace.layout.loss_coupled_by for trace in difference.traces)
    apart = coupled and ranks[0] != ranks[1] and not other_loss(difference, 1.0)
    return apart and abs(factor * ranks[1] / ranks[0] - 1) < SAME_COUNT


def _is(factor: float, seen: float) -> bool:
    """Tell whether what is seen elsewhere is a factor: about as large, and nearer to it than to 1."""
    return abs(seen / factor - 1) < min(_SAME_FACTOR, abs(seen - 1))


def _one_number(difference: Difference) -> bool:
    """Tell whether the model is one number, as a temperature that is learned: any gradient is a multiple of another."""
    return sum(difference.left.layout.numbers().values()) == 1


def _all_zero(difference: Difference) -> bool:
    """Tell whether the model returns zero for all, as a new head does: what gradient it gets says little."""
    places = [difference.left.layout.activations.index(name) for name in difference.chain.judged]
    return not difference.left.arrays["activation/sketch"][difference.row][places].any()


_MOSTLY = 0.5
"""Part of a gradient that may be left over at most where it is another one turned round, however wide the floor is."""

_SAME_FACTOR = 0.05
"""How far the factor of the whole gradient may be from that of the outputs' gradient."""


@rule(
    "loss-normalisation",
    "loss",
    proof="outputs of the model are equal and the gradient of the loss by them is the reference's times one number",
    advice="divide the summed loss once by the number of samples (or tokens) of the whole global batch",
)
def scaled_at_the_outputs(difference: Difference) -> Finding | None:
    """The gradient of equal outputs is the reference's times one number, which rounding hides further back."""
    chain = difference.chain
    if not given_otherwise(difference) or chain.bent or chain.forward or chain.touched:
        return None
    if not _averaged_over_ranks(difference, chain.factor):
        unexplained = other_loss(difference, chain.factor) and not count_of(difference, chain.factor)
        if not difference.passes_part or unexplained or _is_another(difference, chain.factor):
            return None
    return Finding(
        f"the gradient of the loss by the model's outputs is {exact(chain.factor, 4)} times in {difference.runs[1]} "
        f"what it is in {difference.runs[0]}{count_of(difference, chain.factor)}",
        {"factor": chain.factor, "outputs": chain.given_otherwise},
    )


def tolerance_of(difference: Difference, floors: float = 4) -> float:
    """Return what may be left over when one gradient is explained by the other, or by parts of it.

    Args:
        difference: Of the runs.
        floors: How many times further than twins are from one another.
    """
    units = [trace.layout.unit_roundoff for trace in difference.traces]
    if not difference.same_precision:
        return max(difference.tolerance, 32 * max(units))
    # In a coarse format the margin would excuse half a gradient: what is left over is rounding as the twins show it.
    return min(difference.tolerance, max(_FINE, floors * difference.noise("gradient")))


_FINE = 1e-3
"""Part of a gradient that may be left over, however little the twins are apart."""


def _unexplained_rescaling(difference: Difference, changed: list[float]) -> bool:
    """Tell whether code of the loop's own scaled the gradients by a number that no count explains.

    Where both runs clip afterwards, with PyTorch's function, it is no clipping: gradients may be divided by tokens.
    """
    ratio = changed[1] / changed[0] if all(changed) else 1.0
    if abs(ratio - 1) < 1e-3 or max(difference.numbers("scale/value")) or scaled_always(difference):
        return False
    if min(difference.numbers("clip/calls")):
        return False
    return not count_of(difference, ratio)


@rule(
    "batch-coupled-loss",
    "loss",
    proof="outputs of the model agree, the runs cut the batch into other passes, and the autograd graph of the loss "
    "has an operation that couples the samples of a pass: a product of outputs with one another, a root or a quotient "
    "of sums over the batch",
    advice="compute such a loss over the whole global batch: gather the outputs of all ranks, cache those of all "
    "micro-batches (GradCache), or keep the micro-batch of the reference",
)
def batch_coupled(difference: Difference) -> Finding | None:
    """A loss that is no sum over samples, as a contrastive one, is made of other passes."""
    coupled = [trace.layout.loss_coupled_by for trace in difference.traces]
    chain = difference.chain
    if not all(coupled) or not same_start(difference) or not chain.outputs_agree:
        return None
    if chain.judged and not chain.given_otherwise:
        return None
    ours, theirs = (trace.layout.loss_coupled_sizes for trace in difference.traces)
    if ours and ours == theirs:  # of the whole batch in both: what other passes made was kept, as by GradCache
        return None
    passes = [sizes(_coupled_rows(trace, difference.row)) for trace in difference.traces]
    if passes[0] == passes[1]:  # over ranks in one run and one after the other in the other, for one
        return None
    return Finding(
        f"the loss couples the samples of a pass ({coupled[1]}), and a pass has {passes[1]} samples in "
        f"{difference.runs[1]} and {passes[0]} in {difference.runs[0]}",
        {"coupled_by": coupled, "samples_of_a_pass": passes},
    )


def _coupled_rows(trace: Trace, row: int) -> list[list[int]]:
    """Return how many samples each loss couples, by pass and rank: those of all ranks where the loop gathers them."""
    rows = trace.arrays["rank/rows"][row]
    found: list[list[int]] = (rows.sum(0, keepdim=True) if trace.layout.loss_gathered else rows).tolist()
    return found
