"""The rounding of biases' gradients whose terms cancel, or are very many, which twins need not show."""

from collections.abc import Iterator

import torch
from torch import Tensor

from trainparity.parity.noise.distance import norms
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.normalisation import before_each_step, in_lengths, turned
from trainparity.parity.recording.signs import MEAN_LENGTH, signs_used
from trainparity.parity.recording.trace import Layout, Trace


def of_cancelling_biases(reference: Trace, *, to_one_side: bool = False) -> Tensor:
    """Return the floor of biases' gradients whose terms cancel, or are many: float64 [T, P + 1]; zero for other ones.

    As what a discriminator gets from real and from generated samples does: what is left is the rounding of both sums.
    Of terms that add up at random a gradient is as long as the root of their squares. Many terms of one sign, as a
    focal loss's by the scores of all places, round as often, each the same way in a twin that adds them in one order.

    Args:
        reference: The run.
        to_one_side: Whether terms that cancel may all round to one side, as behind a BatchNorm, whose backward pass
            takes one rounded mean from each of them. Twins show that.
    """
    layout = reference.layout
    floor = torch.zeros(len(layout.steps), len(layout.parameters) + 1, dtype=torch.float64)
    lengths, terms, numbers = norms(reference, "gradient").double(), _terms(reference), layout.numbers()
    for name, place, column in _biases(reference):
        longer = (terms[:, column] / lengths[:, place]).nan_to_num(0.0, posinf=0.0)
        floor[:, place] = torch.where(longer > 1, _SUMS * layout.unit_roundoff * longer, 0.0)
        if not is_coarse(layout):  # there sums are made in fp32
            count = reference.arrays["activation/numbers"][:, column] / numbers[name]
            many = layout.unit_roundoff * count.double().sqrt()
            if to_one_side:
                many = many * longer.clamp(min=1)
            floor[:, place] = torch.where(count >= _MANY, torch.maximum(floor[:, place], many), floor[:, place])
    if not is_coarse(layout):
        floor[:, -1] = in_lengths(reference, "gradient", floor[:, :-1] * lengths)[:, -1]
    return floor


def of_one_sided_means(reference: Trace, given_back: Tensor) -> Tensor:
    """Return the floor of gradients in front of a BatchNorm whose terms all round to one side: float64 [T, P + 1].

    Its backward pass takes means from all that it gives back. A mean that another kernel rounds otherwise, as that of
    another memory format, moves all places of a channel alike: what is small in each of them adds up in a sum over all.
    Twins run the same kernel.

    Args:
        reference: The run.
        given_back: The floor of what comes back to modules: float64 [T, A + 1].
    """
    layout = reference.layout
    floor = torch.zeros(len(layout.steps), len(layout.parameters) + 1, dtype=torch.float64)
    if is_coarse(layout):
        return floor
    parts = _ONE_SIDE / margin_of(layout, MARGIN)
    given_back = given_back.clamp(max=_OF_MEANS * layout.unit_roundoff)  # a twin's kink is no mean's rounding
    for place, column, rows, longer in before_batchnorms(reference):
        floor[:, place] = parts * given_back[:, column] * rows.clamp(min=1).sqrt() * longer.clamp(min=1)
    return floor.nan_to_num(0.0, posinf=0.0)  # all together lie within what twins show: 5 floors were seen


def before_batchnorms(reference: Trace) -> Iterator[tuple[int, int, Tensor, Tensor]]:
    """Yield the parameters of layers in front of the last BatchNorm, by their places.

    Each with the place of its layer among the activations, the rows that its gradient is a sum over, of each step [T],
    and how many times longer their terms are than their sum: [T], or 1 of matrices.
    """
    layout = reference.layout
    last = last_batchnorm(layout)
    if last < 0:
        return
    lengths, every = norms(reference, "gradient"), _terms(reference)
    for place, (name, shape) in enumerate(layout.parameters.items()):
        module = name.rpartition(".")[0]
        if module not in layout.activations or not shape or (column := layout.activations.index(module)) >= last:
            continue
        rows = reference.arrays["activation/numbers"][:, column].double() / shape[0]
        yield place, column, rows, every[:, column] / lengths[:, place] if len(shape) == 1 else torch.ones(())


def last_batchnorm(layout: Layout) -> int:
    """Return the place of the last one among the activations, by its class; -1: there is none."""
    found = (place for place, name in enumerate(layout.activations) if "BatchNorm" in layout.modules.get(name, ""))
    return max(found, default=-1)


def of_means_behind(reference: Trace, weights: Tensor) -> Tensor:
    """Return how far running means may be apart for the biases of the layers before them: float64 [T, buffers + 1].

    A BatchNorm takes the bias away again: its gradient is nothing but rounding, and the mean follows it all the same.

    Args:
        reference: The run.
        weights: Relative distances that weights may have after each step: float64 [T, P + 1].
    """
    layout = reference.layout
    moved = before_each_step(reference, torch.minimum(weights[:, :-1] * norms(reference, "weight"), turned(reference)))
    apart = torch.zeros(len(layout.steps), len(layout.buffers), dtype=torch.float64)
    biases = sorted(_biases(reference), key=lambda found: found[2])
    for place, name in enumerate(layout.buffers):
        module = name.removesuffix(".running_mean")
        if module == name or module not in layout.activations:
            continue
        before = [bias for _, bias, column in biases if column < layout.activations.index(module)]
        if before:
            bias = before[-1]
            apart[:, place] = moved[:, bias]
    return in_lengths(reference, "buffer", apart)


def summed(reference: Trace) -> Tensor:
    """Return the most terms that a bias's gradient is a sum of, in each step, of layers that were recorded: [T]."""
    all_numbers, biases = reference.layout.numbers(), _biases(reference)
    numbers, columns = [all_numbers[name] for name, _, _ in biases], [column for _, _, column in biases]
    counts = reference.arrays["activation/numbers"][:, columns].double().nan_to_num(0.0) / torch.tensor(numbers)
    return torch.nn.functional.pad(counts, (0, 1), value=1.0).amax(1)


def of_terms_that_cancel(reference: Trace) -> Tensor:
    """Return the biases of whose terms nothing is left in any step, to the bit: bool [P].

    In another order something is left. Those of a branch that nothing depends on have no terms, and of what is frozen
    there is no gradient.
    """
    lengths, terms, frozen = norms(reference, "gradient"), _terms(reference), reference.arrays["frozen"].any(0)
    found = torch.zeros(lengths.shape[1], dtype=torch.bool)
    for _, place, column in _biases(reference):
        found[place] = not lengths[:, place].any() and terms[:, column].nan_to_num(0.0).any()
    return found & ~frozen


def _biases(reference: Trace) -> list[tuple[str, int, int]]:
    """Return each bias whose layer's output was recorded, with its place and the output's among the activations."""
    shapes, seen = reference.layout.parameters, reference.layout.activations
    layers = ((name, place, name.removesuffix(".bias")) for place, name in enumerate(shapes) if name.endswith(".bias"))
    return [(name, place, seen.index(layer)) for name, place, layer in layers if layer in seen]


def _terms(reference: Trace) -> Tensor:
    """Return the root of the squares of what each activation's gradient holds: float64 [T, A]."""
    per_sample = reference.arrays["activation/numbers"].double() / reference.arrays["num_samples"][:, None]
    signs = torch.tensor([[signs_used(round(count)) for count in row] for row in per_sample.nan_to_num(0.0).tolist()])
    lengths: Tensor = torch.linalg.vector_norm(reference.arrays["activation_gradient/sketch"], dim=2)
    return lengths / (MEAN_LENGTH * signs.sqrt())


_ONE_SIDE = 4
"""Floors of what comes back that may lie on one side, whatever the margin is; 3 were seen."""

_OF_MEANS = 64
"""Unit roundoffs that a mean moves what comes back by at most; 18 were seen."""

_MANY = 256
"""Terms of a sum from which on it rounds as their root: of 1024, sums in another order lay 12 such roots off."""

_SUMS = 4
"""Roundings of sums of real and of made samples, each as long as a few times that root; 3 were seen."""
