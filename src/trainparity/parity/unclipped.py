"""Gradients as backward made them, where one run clips with PyTorch's function and the other by code of its own.

The Recorder looks before PyTorch's function and at the update. What code of the loop's own has clipped would be held
against what is not clipped yet.
"""

import torch
from torch import Tensor

from trainparity.parity.causes.by_hand import kept_after_backward
from trainparity.parity.causes.clipping import part_kept
from trainparity.parity.recording.trace import Trace


def unclipped(left: Trace, right: Trace, noise: Tensor) -> tuple[Trace, Trace]:
    """Return both traces with gradients before clipping, in each step in which they keep the same part of them.

    Args:
        left: The reference.
        right: The run that is compared with it.
        noise: The floor of the whole gradient at each step: float64 [T].
    """
    return _without_own_clipping(left, right, noise), _without_own_clipping(right, left, noise)


def _without_own_clipping(trace: Trace, other: Trace, noise: Tensor) -> Trace:
    kept = torch.ones(len(trace.layout.steps), dtype=torch.float64)
    for row in _clipped_by_one(trace, other):
        own, theirs = kept_after_backward(trace, row), part_kept(other, row)
        if 0 < own < 1 and abs(own / theirs - 1) <= max(_SAME_PART, _FLOORS * float(noise[row])):
            kept[row] = own
    if not (kept < 1).any():
        return trace
    made = {f"gradient/{part}": trace.arrays[f"gradient/{part}"] for part in ("sketch", "norm")}
    return Trace(
        trace.layout,
        trace.arrays
        | {name: array / kept.reshape(-1, *[1] * (array.ndim - 1)) for name, array in made.items()}
        | {"gradient_norm": trace.arrays["gradient_norm"] / kept},
    )


def _clipped_by_one(trace: Trace, other: Trace) -> list[int]:
    """Return the steps in which the other run alone calls a function that clips, and is cut by it."""
    if len(trace.layout.steps) != len(other.layout.steps):
        return []
    rows: list[int] = (
        ((trace.arrays["clip/calls"] == 0) & other.arrays["clip/cuts"].bool()).nonzero().flatten().tolist()
    )
    return rows


_SAME_PART = 1e-3
"""Part by which what two runs keep may differ for rounding."""

_FLOORS = 2
"""Floors of the gradient by which its norm may be off, from which each run computes what it keeps."""
