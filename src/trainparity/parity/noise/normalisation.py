"""What rounding in a gradient can make of the update of an optimizer that divides each element by its own size."""

import math
from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, norms, relative
from trainparity.parity.noise.margin import MARGIN, margin_of
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.sketch import LEVELS
from trainparity.parity.recording.trace import Trace

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
        Relative L2 distances, [T, tensors + 1]; zeros for an optimizer that does no such thing.
    """
    if reference.layout.optimizer in _LINEAR or decomposes(reference):
        return torch.zeros_like(gradient)
    middles = 2.0 ** -(2 * torch.arange(LEVELS, dtype=torch.float64) + 1)
    margin, noise = margin_of(reference.layout, MARGIN), gradient[:, :-1, None] / middles
    turned = torch.where(noise * margin > _MATTERS, noise.clamp(max=_TURNED / margin), 0.0)
    each = (reference.arrays["gradient/levels"] * turned**2).sum(-1).sqrt()
    return _relative(reference, kind, each * norms(reference, "update"))


def of_nothing(reference: Trace, kind: Literal["update", "weight"], noisy: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart of gradients that cancel to the bit in the reference; as above.

    As a constant's that two passes are given with opposite signs: noise makes elements as large as the largest of it.

    Args:
        reference: The run.
        kind: What the distance is of.
        noisy: Parameters of which this is known, as twins have a gradient: bool [P]. Others' zeros are no rounding.
    """
    updates = norms(reference, "update").double()
    cancel = noisy & (norms(reference, "gradient") == 0).all(0) & (reference.layout.optimizer not in _LINEAR)
    sizes = torch.tensor(
        [math.prod(shape) for shape in reference.layout.parameters.values()], dtype=torch.float64
    ).sqrt()
    largest = (updates / sizes.clamp(min=1)).nan_to_num(0.0, posinf=0.0).amax(1, keepdim=True)
    moved = torch.where(cancel, largest * sizes, 0.0)
    return _relative(reference, kind, moved * _TURNED / margin_of(reference.layout, MARGIN))


def passed_on(reference: Trace, kind: Literal["update", "weight"], gradient: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart that are as far off as their gradients; as `amplified`."""
    return _relative(reference, kind, gradient[:, :-1] * norms(reference, "update"))


def decomposes(reference: Trace) -> bool:
    """Tell whether the optimizer's update is made of a gradient as a matrix, not of each element for itself."""
    name = reference.layout.optimizer.lower()
    return any(known in name for known in _DECOMPOSING) and "adam" not in name


_DECOMPOSING = ("muon", "shampoo", "soap", "scion", "dion")
"""Parts of the names of such optimizers. One that says Adam too, as it makes some updates so, is held to be that."""


def jumping(reference: Trace, kind: Literal["update", "weight"], apart: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart where an optimizer computes in a coarser format than the model.

    Newton and Schulz's iteration runs in bf16: a gradient that rounding changes has the same bits there, or its norm
    has the next number, by 1 to 3 % of the update. Of few twins a tensor need not jump in any: the root mean square
    over all matrices, steps and twins stands for each. Vectors are moved by something else.

    Args:
        reference: The run.
        kind: What the distance is of.
        apart: Relative distances of the twins' updates: float64 [twins, T, tensors + 1].

    Returns:
        Relative L2 distances, [T, tensors + 1]; zeros for an optimizer that does no such thing.
    """
    matrices = [len(shape) > 1 for shape in reference.layout.parameters.values()]
    if not decomposes(reference) or not any(matrices):
        return torch.zeros_like(apart[0])
    usual = apart[..., :-1][..., matrices].square().nanmean().sqrt() * _of_margin(reference)
    return _relative(reference, kind, usual * norms(reference, "update") * torch.tensor(matrices))


def without_jumps(reference: Trace, floor: Tensor) -> Tensor:
    """Return a floor of updates whose jumps are not multiplied by more than they reach, whatever the margin is."""
    if not decomposes(reference):
        return floor
    jumped = UNIT_ROUNDOFF["bf16"]
    return torch.where(floor > jumped, (floor * _of_margin(reference)).clamp(min=jumped), floor)


def _of_margin(reference: Trace) -> float:
    return _JUMPS / margin_of(reference.layout, MARGIN)


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
