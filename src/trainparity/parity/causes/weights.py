"""Micro-batches that weigh otherwise in a sum: a mean of means."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.causes.batchnorm import batchnorm_statistics
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.loss import tolerance_of
from trainparity.parity.causes.passes import forward_passes
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import is_of_sums
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import combine, fit
from trainparity.records.names import some
from trainparity.records.numbers import number

_ADVICE = "sum the losses of all micro-batches and ranks and divide once by the global count of samples (or tokens)"


@rule(
    "loss-normalisation",
    "loss",
    proof="both gradients are sums of *the same* micro-batch gradients with other weights (least squares on their "
    "sketches leaves only rounding): a mean of means",
    advice=_ADVICE,
)
def weighted_otherwise(difference: Difference) -> Finding | None:
    """Both gradients are sums of the same micro-batch gradients, weighted otherwise: a mean of means.

    The weights come from least squares on the micro-batches' sketches; the reference's gradient must be such a
    sum but for rounding, which no other fault leaves it.
    """
    if difference.stage != "gradient":
        return None
    if any(_in_terms(trace, difference.row) for trace in difference.traces):
        return None
    tolerance = max(tolerance_of(difference), 1e-5)
    coarse = is_coarse(difference.left.layout)  # where another loss is nearly such a sum, too
    if coarse and _at_the_outputs(difference) == (True, None):
        return None  # another loss of what passes returned, which no weights of theirs explain
    left_over = max(tolerance_of(difference, _OF_TWINS), 1e-5) if coarse else tolerance
    left_over = min(left_over, _UNEXPLAINED)
    if coarse and batchnorm_statistics.test(difference):
        tolerance = max(tolerance, _OF_BATCHNORM)
    cuts, totals = difference.micro(), _totals(difference)
    return _reweighted(difference, difference.chain.judged, cuts, totals, left_over, tolerance)


def _in_terms(trace: Trace, row: int) -> bool:
    """Tell whether backward passes are those of a loss's terms rather than of micro-batches: they share forward passes.

    A loop that weighs such terms otherwise has another loss.
    """
    reached, backwards = (trace.arrays[f"rank/{what}"][row] for what in ("reached", "backwards"))
    return bool(((reached > 0) & (backwards > reached)).any())


def _totals(difference: Difference) -> list[Tensor]:
    """Return the sketches of both runs' gradients: float64 [256]."""
    return [trace.arrays["rank/total"][difference.row][0] for trace in difference.traces]


_UNEXPLAINED = 0.3
"""Part of a gradient that is left over where its micro-batches do not make it, however far the twins are apart."""

_OF_BATCHNORM = 0.1
"""Part by which weights may vary that fit by chance what a BatchNorm makes of other numbers; 0.06 was seen."""

_OF_TWINS = 1.5
"""Floors of a coarse gradient that its micro-batches may leave over: what they are rounded by, as twins are."""


def _given_otherwise(difference: Difference) -> Finding | None:
    """Find other weights in the gradients of what forward passes returned, which explain how far these are apart."""
    differ, found = _at_the_outputs(difference)
    return found or (_in_one_term(difference) if differ else None)


def _at_the_outputs(difference: Difference) -> tuple[bool, Finding | None]:
    """Tell whether equal outputs are given another gradient, and find weights of passes that explain it."""
    hashes, given = difference.pair("samples"), difference.pair("rank/given")
    if not difference.same_precision or difference.beyond["start"] or hashes is None or not torch.equal(*hashes):
        return False, None
    chain = difference.chain
    if not chain.outputs_agree or not chain.judged or not given:
        return False, None
    if any(max(difference.numbers(name)) for name in ("made_elsewhere", "judged_elsewhere")):
        return False, None
    if is_coarse(difference.left.layout) and any(map(is_of_sums, chain.judged)):
        return False, None  # so few numbers that weights explain any others, but for rounding
    return _explained(difference, chain.judged, given)


def _in_one_term(difference: Difference) -> Finding | None:
    """Find other weights in the gradients of single outputs: each has a term of the loss of its own."""
    by_output, names = difference.pair("rank/given_by_output"), difference.left.layout.given_outputs
    judged = difference.chain.judged
    if by_output is None or names != difference.right.layout.given_outputs or not set(judged) <= set(names):
        return None
    found = {name: _explained(difference, [name], [g[..., names.index(name), :] for g in by_output]) for name in judged}
    terms = {name: finding for name, (differ, finding) in found.items() if differ}
    first = next(iter(terms.values()), None)
    if first is None or not all(terms.values()):
        return None
    return Finding(f"in the term of the loss that takes {some(list(terms))} {first.why}", first.evidence)


def _explained(difference: Difference, names: Sequence[str], given: Sequence[Tensor]) -> tuple[bool, Finding | None]:
    """Tell whether runs give outputs another gradient, and find weights of passes that explain it.

    Args:
        difference: Of the runs.
        names: Of the outputs.
        given: What each run's passes gave them: [R, n, S].
    """
    left, right = totals = [_mean_over_groups(*pair) for pair in zip(difference.traces, given, strict=True)]
    apart = float(torch.linalg.vector_norm(right - left) / torch.linalg.vector_norm(left))
    index = [difference.left.layout.activations.index(name) for name in names]
    floor = float(difference.floor["activation_gradient"][difference.row][index].amax())
    coarse = is_coarse(difference.left.layout)
    if not apart > (_ROUNDED if coarse else difference.margin) * floor:
        return False, None
    apart = min(apart, fit(left, right)[1])  # one number for all is no other weight of any
    explained = min(apart / _EXPLAINED, _UNEXPLAINED if coarse else max(tolerance_of(difference), 1e-5))
    cuts = [passes[passes.abs().sum(1) > 0] for passes in (each.flatten(0, 1) for each in given)]
    return True, _reweighted(difference, names, cuts, totals, explained, apart / _EXPLAINED)


def _weigh_otherwise(difference: Difference) -> bool:
    """Tell whether passes weigh otherwise though the floor of a coarse format hides it in the gradient."""
    if not is_coarse(difference.left.layout) or _given_otherwise(difference) is None:
        return False
    seen = [cut for cut in difference.micro() if len(cut) > 1]
    # What code of the loop's own multiplies the gradients with may make up for the loss.
    found = (_ratios(*(combine(cut, total)[0] for total in _totals(difference))) for cut in seen)
    apart = [float(ratio.amax() - ratio.amin()) for ratio in found if ratio is not None]
    return not seen or max(apart, default=0.0) > _ROUNDED * difference.left.layout.unit_roundoff


_ROUNDED = 4
"""Floors by which the gradient of equal outputs may be off for rounding alone, as of a loss in a coarse format."""

_EXPLAINED = 4
"""How many times nearer than the runs are to one another weights must bring them: any would, were there many."""


@rule(
    "loss-normalisation",
    "loss",
    proof="outputs of the model agree, and the gradients of the loss by them are in both runs sums of *the same* "
    "passes' with other weights, as where FSDP2 hands over no micro-batch's own gradient, or those by some of the "
    "outputs alone, as in one term of the loss",
    advice=_ADVICE,
    differs=_weigh_otherwise,
)
def weighted_at_the_outputs(difference: Difference) -> Finding | None:
    """The loss weighs forward passes otherwise: a mean of means, seen by what each returned to the loop."""
    return _given_otherwise(difference) if difference.stage == "gradient" or _weigh_otherwise(difference) else None


def _mean_over_groups(trace: Trace, given: Tensor) -> Tensor:
    """Return what passes [R, n, S] were given in sum, as ranks average it: float64 [S]."""
    return given.sum((0, 1)) / (len(set(trace.layout.groups)) or trace.layout.world_size)


def _reweighted(
    difference: Difference,
    judged: Sequence[str],
    cuts: Sequence[Tensor],
    totals: list[Tensor],
    left_over: float,
    tolerance: float,
) -> Finding | None:
    """Find that `totals` [S] of both runs are sums of one run's passes with weights whose ratio varies.

    Args:
        difference: Of the runs.
        judged: What the passes returned that the loss is made of.
        cuts: What each run's passes made [n, S]. Where they cut the batch otherwise, as contiguous micro-batches and a
            sampler's ranks do, the passes of the run that is wrong explain both.
        totals: Of the reference and the other run.
        left_over: Part of a total that such a sum may leave over.
        tolerance: By how much ratios may vary.
    """
    for passes, trace in sorted(zip(cuts, difference.traces, strict=True), key=lambda cut: len(cut[0]), reverse=True):
        if len(passes) < 2 or _one_number_each(difference, trace, judged) or _explain_anything(passes):
            continue
        (left, of_left), (right, of_right) = (combine(passes, total) for total in totals)
        ratio = _ratios(left, right) if max(of_left, of_right) <= left_over else None
        if ratio is not None and float(ratio.amax() - ratio.amin()) > tolerance:
            return Finding(
                f"micro-batches of {difference.runs[1]} weigh {number(float(ratio.amin()))} to "
                f"{number(float(ratio.amax()))} times what they weigh in {difference.runs[0]}: "
                f"{_how(trace, difference.row)}",
                {
                    "weights_of_the_reference": left.tolist(),
                    "weights_of_the_other": right.tolist(),
                    "left_over": max(of_left, of_right),
                },
            )
    return None


def _how(trace: Trace, row: int) -> str:
    """Say what weighs passes otherwise, by their numbers of samples."""
    if len(set(trace.arrays["rank/rows"][row].flatten().tolist()) - {0}) > 1:
        return "a mean of means over micro-batches of unequal size"
    return (
        "a mean of means, where they count something else than samples, or losses of some that are scaled, or "
        "gradients that are scaled or reduced again before the next micro-batch"
    )


def _one_number_each(difference: Difference, trace: Trace, judged: Sequence[str]) -> bool:
    """Tell whether the loss of each pass is made of one number: any other loss of that is another weight, too."""
    numbers = trace.numbers(difference.row)
    passes = int(forward_passes(trace, difference.row).sum())
    return bool(judged) and all(numbers[name] <= passes for name in judged)


def _explain_anything(passes: Tensor) -> bool:
    """Tell whether passes [n, S] are as many as the numbers that their sketches hold: any gradient is a sum of them."""
    return len(passes) >= int((passes != 0).any(0).sum())


def _ratios(left: Tensor, right: Tensor) -> Tensor | None:
    """Return right / left; None if a micro-batch is missing from either sum, or taken away: no matter of weights."""
    smallest = 1e-4 * max(float(left.abs().amax()), float(right.abs().amax()))
    if float(left.abs().amin()) < smallest or float(right.abs().amin()) < smallest:
        return None
    return right / left if bool((right / left > 0).all()) else None
