"""What rounding in a gradient can make of the update of an optimizer that divides each element by its own size."""

import math
from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, norms, relative
from trainparity.parity.noise.margin import MARGIN, margin_of
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.sketch import LEVELS
from trainparity.parity.recording.trace import Layout, Trace

_LINEAR = ("", "SGD", "ASGD", "LBFGS")
"""Optimizers, and none, whose update is as far off as the gradient is: no element counts for more than its size."""

_TURNED = 2.5
"""Distance, in its own length, of an element of the update whose sign turns, and a little: they differ in length."""

_MATTERS = 1 / 4
"""Noise, margin times the floor's and in lengths of an element, from which it counts: of less, twins show enough."""


def amplified(reference: Trace, kind: Literal["update", "weight"], gradient: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart that are made of gradients with so much noise.

    The first update of Adam is the gradient's sign. An element that noise can turn moves its weight the other way, by
    as much as the largest does, though its gradient is nothing beside the others'; a twin shows it only if it happens
    to turn there. So noise of the size s is taken to make s / |x| of the update of an element x that is not much
    larger, and at most a turn of the sign, which is not multiplied by the margin.

    Args:
        reference: Its levels of the gradient are used.
        kind: What the distance is of.
        gradient: Relative L2 distances that its gradients may have: float64 [T, tensors + 1], as a floor's.

    Returns:
        Relative L2 distances, [T, tensors + 1]; zeros for what an optimizer updates that does no such thing.
    """
    normalised = ~(_is_linear(reference.layout) | decomposed(reference.layout))
    if not normalised.any():
        return torch.zeros_like(gradient)
    middles = 2.0 ** -(2 * torch.arange(LEVELS, dtype=torch.float64) + 1)
    margin, noise = margin_of(reference.layout, MARGIN), gradient[:, :-1, None] / middles
    turned = torch.where(noise * margin > _MATTERS, noise.clamp(max=_TURNED / margin), 0.0)
    each = (reference.arrays["gradient/levels"] * turned**2).sum(-1).sqrt()
    return _relative(reference, kind, each * norms(reference, "update") * normalised)


def of_nothing(reference: Trace, kind: Literal["update", "weight"], noisy: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart of gradients that cancel to the bit in the reference; as above.

    As a constant's that two passes are given with opposite signs: noise makes elements as large as the largest of it.

    Args:
        reference: The run.
        kind: What the distance is of.
        noisy: Parameters of which this is known, as twins have a gradient: bool [P]. Others' zeros are no rounding.
    """
    updates = norms(reference, "update").double()
    cancel = noisy & (norms(reference, "gradient") == 0).all(0) & ~_is_linear(reference.layout)
    sizes = torch.tensor(
        [math.prod(shape) for shape in reference.layout.parameters.values()], dtype=torch.float64
    ).sqrt()
    largest = (updates / sizes.clamp(min=1)).nan_to_num(0.0, posinf=0.0).amax(1, keepdim=True)
    moved = torch.where(cancel, largest * sizes, 0.0)
    return _relative(reference, kind, moved * _TURNED / margin_of(reference.layout, MARGIN))


def passed_on(reference: Trace, kind: Literal["update", "weight"], gradient: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart that are as far off as their gradients; as `amplified`."""
    return _relative(reference, kind, gradient[:, :-1] * norms(reference, "update"))


def turned(reference: Trace) -> Tensor:
    """Return how far weights can be apart, at most, if each update so far turned all its signs: float64 [T, P].

    Within the margin; infinite where updates are as long as their gradient, whatever that is.
    """
    moved = accumulated(reference, norms(reference, "update").double()) * _TURNED / margin_of(reference.layout, MARGIN)
    return moved.masked_fill(_is_linear(reference.layout), torch.inf)


def decomposed(layout: Layout) -> Tensor:
    """Return the parameters whose update is made of a gradient as a matrix, not of each element for itself: bool [P].

    Of several optimizers that step together, as Muon and AdamW for the rest, each has its own.
    """
    return torch.tensor([_decomposes(name.lower()) for name in layout.updated_by()], dtype=torch.bool)


def _decomposes(optimizer: str) -> bool:
    return any(known in optimizer for known in _DECOMPOSING) and "adam" not in optimizer


def _is_linear(layout: Layout) -> Tensor:
    return torch.tensor([name in _LINEAR for name in layout.updated_by()], dtype=torch.bool)


_DECOMPOSING = ("muon", "shampoo", "soap", "scion", "dion")
"""Parts of the names of such optimizers. One that says Adam too, as it makes some updates so, is held to be that."""


def jumping(reference: Trace, kind: Literal["update", "weight"], apart: Tensor | None) -> Tensor:
    """Return how far updates, or weights, may be apart where an optimizer computes in a coarser format than the model.

    Newton and Schulz's iteration runs in bf16: a gradient that rounding changes has the same bits there, or its norm
    has the next number, by 1 to 3 % of the update. Of few twins a tensor need not jump in any: the root mean square
    over all matrices, steps and twins stands for each. Vectors are moved by something else.

    Args:
        reference: The run.
        kind: What the distance is of.
        apart: Relative distances of the twins' updates: float64 [twins, T, tensors + 1]; None where there are none.

    Returns:
        Relative L2 distances, [T, tensors + 1]; zeros for what an optimizer updates that does no such thing.
    """
    matrices = _matrices(reference.layout)
    usual = torch.tensor(_JUMP, dtype=torch.float64)
    if apart is not None:
        usual = torch.where(apart.isfinite(), apart, torch.nan)[..., :-1][..., matrices].square().nanmean().sqrt()
    jumps = torch.where(matrices, usual * _of_margin(reference), 0.0)
    return _relative(reference, kind, jumps * norms(reference, "update"))


def orthogonalised(reference: Trace, kind: Literal["update", "weight"], gradient: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart that are made of matrices with so much noise; as `amplified`.

    All singular values become one, as those that are no larger than noise: their part of the update is its root.
    """
    noise = torch.where(_matrices(reference.layout), gradient[:, :-1].clamp(max=1).sqrt(), 0.0)
    return _relative(reference, kind, noise * norms(reference, "update"))


def _matrices(layout: Layout) -> Tensor:
    matrices = torch.tensor([len(shape) > 1 for shape in layout.parameters.values()], dtype=torch.bool)
    return matrices & decomposed(layout)


def before_each_step(reference: Trace, weights: Tensor) -> Tensor:
    """Return what the step before has made of weights, as a floor, [T, ...]; zeros where a window begins."""
    before = torch.zeros_like(weights)
    for window in reference.layout.windows():
        before[window.start + 1 : window.stop] = weights[window.start : window.stop - 1]
    return before


def without_jumps(reference: Trace, floor: Tensor) -> Tensor:
    """Return a floor of updates whose jumps are not multiplied by more than they reach, whatever the margin is."""
    jump = decomposed(reference.layout)
    if not jump.any():
        return floor
    jumped, columns = UNIT_ROUNDOFF["bf16"], torch.cat([jump, torch.ones(1, dtype=torch.bool)])
    return torch.where(columns & (floor > jumped), (floor * _of_margin(reference)).clamp(min=jumped), floor)


def _of_margin(reference: Trace) -> float:
    return _JUMPS / margin_of(reference.layout, MARGIN)


_JUMP = 0.01
"""Root mean square of the jumps of an update, where no twin shows it."""

_JUMPS = 5
"""Times their root mean square that jumps reach, whatever the margin is: 3 were seen."""


def _relative(reference: Trace, kind: Literal["update", "weight"], moved: Tensor) -> Tensor:
    """Return by how much of their length updates, or weights, are apart that each step moves so: [T, tensors + 1]."""
    if kind == "weight":
        moved = accumulated(reference, moved)
    return in_lengths(reference, kind, moved)


def in_lengths(reference: Trace, kind: Compared, moved: Tensor) -> Tensor:
    """Return by how much of their length tensors of a kind are moved: [T, tensors] to [T, tensors + 1]."""
    return relative(moved, norms(reference, kind)).nan_to_num(0.0, posinf=0.0)


def accumulated(reference: Trace, moved: Tensor) -> Tensor:
    """Add up over each window what every step, traced or not, moves the weights: [T, tensors]."""
    steps = torch.tensor(reference.layout.steps)
    passed = steps.diff(prepend=steps[:1] - 1)[:, None]
    return torch.cat([(moved * passed)[window].cumsum(0) for window in reference.layout.windows()])
