"""Sums and multiples of gradients, tested on their sketches."""

import torch
from torch import Tensor


def fit(base: Tensor, target: Tensor) -> tuple[float, float]:
    """Return the factor that brings `base` nearest to `target`, and the relative distance that is left."""
    square, length = float(base @ base), float(torch.linalg.vector_norm(target))
    if square == 0 or length == 0 or not (base.isfinite().all() and target.isfinite().all()):
        return 0.0, 1.0
    factor = float(base @ target) / square
    return factor, float(torch.linalg.vector_norm(target - factor * base)) / length


def combine(parts: Tensor, target: Tensor) -> tuple[Tensor, float]:
    """Return the weights by which rows of `parts` [n, S] add up nearest to `target` [S], and what is left over."""
    length = float(torch.linalg.vector_norm(target))
    if not len(parts) or len(parts) > parts.shape[1] // 4 or length == 0 or not parts.isfinite().all():
        return torch.zeros(len(parts)), 1.0
    lengths = torch.linalg.vector_norm(parts, dim=1, keepdim=True)
    weights = torch.linalg.lstsq((parts / lengths).T, target[:, None]).solution.squeeze(1) / lengths.squeeze(1)
    return weights, float(torch.linalg.vector_norm(target - weights @ parts)) / length
