"""What rounding in a gradient can make of the update of an optimizer that divides each element by its own size."""

from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, norms, relative, sizes
from trainparity.parity.noise.margin import MARGIN, margin_of
from trainparity.parity.recording.sketch import LEVELS
from trainparity.parity.recording.trace import Layout, Trace

_LINEAR = ("", "SGD", "ASGD", "LBFGS")
"""Optimizers, and none, whose update is as far off as the gradient is: no element counts for more than its size."""

_TURNED = 2.5
"""Distance, in its own length, of an element of the update whose sign turns, and a little: they differ in length."""

_ALONE = 2
"""Elements of a tensor that turn at once, where others as small do not."""

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
    normalised = _is_normalised(reference.layout)
    if not normalised.any():
        return torch.zeros_like(gradient)
    margin, noise = margin_of(reference.layout, MARGIN), gradient[:, :-1, None] / _middles()
    turned = torch.where(noise * margin > _MATTERS, noise.clamp(max=_TURNED / margin), 0.0)
    each = (reference.arrays["gradient/levels"] * turned**2).sum(-1).sqrt()
    return of_moved(reference, kind, each * norms(reference, "update") * normalised)


def turned_by(reference: Trace, gradient: Tensor) -> Tensor:
    """Return how far updates are apart whose gradients are so far apart, where that is known: no floor of many.

    Where what differs lies in few elements, as a bias has few, these turn though others of their size would not.

    Args:
        reference: Its levels of the gradient are used.
        gradient: Relative L2 distances of its gradients: float64 [T, tensors + 1].

    Returns:
        Relative L2 distances, [T, tensors]; zeros for what an optimizer updates that does no such thing.
    """
    numbers, levels = sizes(reference.layout).double(), reference.arrays["gradient/levels"]
    noise = gradient[:, :-1, None] / _middles()
    few = ((levels > 0) & (noise * numbers.sqrt()[:, None] > 1)).any(-1) * (_ALONE / numbers).clamp(max=1)
    many = levels * noise.clamp(max=_TURNED) ** 2
    return (many.sum(-1) + few * _TURNED**2).sqrt() * _is_normalised(reference.layout)


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
    lengths = sizes(reference.layout).double().sqrt()
    largest = (updates / lengths.clamp(min=1)).nan_to_num(0.0, posinf=0.0).amax(1, keepdim=True)
    moved = torch.where(cancel, largest * lengths, 0.0)
    return of_moved(reference, kind, moved * _TURNED / margin_of(reference.layout, MARGIN))


def passed_on(reference: Trace, kind: Literal["update", "weight"], gradient: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart that are as far off as their gradients; as `amplified`."""
    return of_moved(reference, kind, gradient[:, :-1] * norms(reference, "update"))


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


def _decomposed_always(layout: Layout) -> Tensor:
    """Return the parameters of which that is so for sure: bool [P].

    An optimizer that updates vectors too has another way for these, and may take it for a matrix, as for embeddings.
    """
    names = layout.updated_by()
    with_vectors = {name for name, shape in zip(names, layout.parameters.values(), strict=True) if len(shape) < 2}
    return decomposed(layout) & torch.tensor([name not in with_vectors for name in names], dtype=torch.bool)


def _decomposes(optimizer: str) -> bool:
    kind, _, ways = optimizer.partition(" (")
    named = [way for way in ways.rstrip(")").split(", ") if any(known in way for known in _DECOMPOSING)]
    if named:  # of a class that has several ways, by group
        return all(way.endswith(": true") for way in named)
    return any(known in kind for known in _DECOMPOSING) and "adam" not in kind


_DECOMPOSING = ("muon", "shampoo", "soap", "scion", "dion")
"""Parts of the names of such optimizers. One that says Adam too, as it makes some updates so, is held to be that."""


def _is_normalised(layout: Layout) -> Tensor:
    """Tell which parameters may have updates of which each element is divided by its own size: bool [P]."""
    return ~(_is_linear(layout) | _decomposed_always(layout))


def _middles() -> Tensor:
    """Return how large an element on each level is, in lengths of a mean one."""
    return 2.0 ** -(2 * torch.arange(LEVELS, dtype=torch.float64) + 1)


def _is_linear(layout: Layout) -> Tensor:
    return torch.tensor([name in _LINEAR for name in layout.updated_by()], dtype=torch.bool)


def before_each_step(reference: Trace, weights: Tensor) -> Tensor:
    """Return what the step before has made of weights, as a floor, [T, ...]; zeros where a window begins."""
    before = torch.zeros_like(weights)
    for window in reference.layout.windows():
        before[window.start + 1 : window.stop] = weights[window.start : window.stop - 1]
    return before


def of_moved(reference: Trace, kind: Literal["update", "weight"], moved: Tensor) -> Tensor:
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
