"""What an optimizer makes of a gradient as a matrix, as Muon does: its iteration runs in bf16, and jumps by a place."""

from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.noise.distance import norms
from trainparity.parity.noise.margin import MARGIN, margin_of
from trainparity.parity.noise.normalisation import decomposed, of_moved
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.trace import Layout, Trace


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
    return of_moved(reference, kind, jumps * norms(reference, "update"))


def orthogonalised(reference: Trace, kind: Literal["update", "weight"], gradient: Tensor) -> Tensor:
    """Return how far updates, or weights, may be apart that are made of matrices with so much noise; as `amplified`.

    All singular values become one, as those that are no larger than noise: their part of the update is its root.
    """
    noise = torch.where(_matrices(reference.layout), gradient[:, :-1].clamp(max=1).sqrt(), 0.0)
    return of_moved(reference, kind, noise * norms(reference, "update"))


def _matrices(layout: Layout) -> Tensor:
    matrices = torch.tensor([len(shape) > 1 for shape in layout.parameters.values()], dtype=torch.bool)
    return matrices & decomposed(layout)


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
