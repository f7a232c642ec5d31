"""What rounding in a gradient can make of the update of an optimizer that divides each element by its own size."""

from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.distance import norms, ratio, with_all
from trainparity.parity.margin import MARGIN, margin_of
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
    if reference.layout.optimizer in _LINEAR:
        return torch.zeros_like(gradient)
    middles = 2.0 ** -(2 * torch.arange(LEVELS, dtype=torch.float64) + 1)
    margin, noise = margin_of(reference.layout, MARGIN), gradient[:, :-1, None] / middles
    turned = torch.where(noise * margin > _MATTERS, noise.clamp(max=_TURNED / margin), 0.0)
    each = (reference.arrays["gradient/levels"] * turned**2).sum(-1).sqrt()
    moved = each * norms(reference, "update")
    if kind == "weight":
        moved = _accumulated(reference, moved)
    return ratio(with_all(moved), with_all(norms(reference, kind))).nan_to_num(0.0, posinf=0.0)


def _accumulated(reference: Trace, moved: Tensor) -> Tensor:
    """Add up over each window what every step, traced or not, moves the weights: [T, tensors]."""
    steps = torch.tensor(reference.layout.steps)
    passed = steps.diff(prepend=steps[:1] - 1)[:, None]
    return torch.cat([(moved * passed)[window].cumsum(0) for window in reference.layout.windows()])
