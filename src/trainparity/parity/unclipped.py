"""Gradients as backward made them, where one run clips with PyTorch's function and the other by code of its own.

The Recorder looks before PyTorch's function and at the update. What code of the loop's own has clipped would be held
against what is not clipped yet; and a gradient that carries a loss scale there, against one that carries none.
"""

import torch
from torch import Tensor

from trainparity.parity.causes.clipping import part_kept, parted_limits
from trainparity.parity.noise.distance import distances
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.after_backward import kept_after_backward, made_by_backward


def unclipped(left: Trace, right: Trace, noise: Tensor) -> tuple[Trace, Trace]:
    """Return both traces with gradients before clipping, in each step in which the same is applied in both.

    Args:
        left: The reference.
        right: The run that is compared with it.
        noise: The floor of the whole gradient at each step: float64 [T].
    """
    left, right = _without_scale(left, right), _without_scale(right, left)
    return _without_own_clipping(left, right, noise), _without_own_clipping(right, left, noise)


def _without_scale(trace: Trace, other: Trace) -> Trace:
    """Return a trace without the loss scale in gradients that carried it where they were clipped.

    They are recorded then. A loop may ask for their norm so, or cut them at a limit times the scale: at another one it
    leaves another part.
    """
    arrays = trace.arrays
    rows = _carrying(trace)
    limits = _limits(trace)
    rows &= (arrays["clip/cuts"] == 0) | _are_alike(trace, other)
    if not rows.any():
        return trace
    factors = torch.where(rows, 1 / arrays["scale/value"], 1.0)
    found = {name: arrays[name] * factors.view(-1, *[1] * (arrays[name].ndim - 1)) for name in _CARRYING}
    found["scale/clipped"] = arrays["scale/clipped"] & ~rows
    found["scale/value"] = torch.where(rows, 1.0, arrays["scale/value"])
    found["clip/max_norm"] = torch.where(rows, limits, arrays["clip/max_norm"])
    return Trace(trace.layout, arrays | found)


def _carrying(trace: Trace) -> Tensor:
    """Return the steps in which gradients carry the loss scale where they are clipped, and not at the update: [T]."""
    arrays = trace.arrays
    found: Tensor = (arrays["scale/clipped"] != 0) & (arrays["scale/left"] == 0) & (arrays["scale/value"] > 0)
    return found


def _limits(trace: Trace) -> Tensor:
    """Return the limit of each step, without the loss scale where gradients carry it: float64 [T]."""
    limits = trace.arrays["clip/max_norm"].double()
    return torch.where(_carrying(trace), limits / trace.arrays["scale/value"], limits)


def _are_alike(trace: Trace, other: Trace) -> Tensor:
    """Tell whether both runs clip at one limit but for the loss scale, at each step: bool [T]."""
    limits, others = _limits(trace), _limits(other)
    if len(limits) != len(others):
        return torch.zeros_like(limits, dtype=torch.bool)
    return (limits - others).abs() <= parted_limits(distances(trace, other, "start"), (limits, others)) * others


def _without_own_clipping(trace: Trace, other: Trace, noise: Tensor) -> Trace:
    rows = _clipped_by_one(trace, other)
    found = {name: trace.arrays[name].clone() for name in _GRADIENTS} if rows else {}
    for row in rows:
        tolerance = min(max(_SAME_PART, _FLOORS * float(noise[row])), _NO_PART)
        # What the other run clips carries its loss scale still, or carries none.
        scale = 1.0 if other.arrays["scale/clipped"][row] else float(trace.arrays["scale/value"][row]) or 1.0
        own, theirs = kept_after_backward(trace, row) * scale, part_kept(other, row)
        if 0 < own < 1 and abs(own / theirs - 1) <= tolerance:
            for array in found.values():
                array[row] /= own
        elif _applied_alike(trace, other, row, tolerance):  # each parameter's was shortened by itself, or dropped
            for name, array in found.items():
                array[row] = other.arrays[name][row]
    return Trace(trace.layout, trace.arrays | found) if rows else trace


_GRADIENTS = ("gradient/sketch", "gradient/norm", "gradient_norm")

_CARRYING = (*_GRADIENTS, "rank/total", "rank/micro", "rank/held", "rank/left", "rank/after")


def _applied_alike(trace: Trace, other: Trace, row: int, tolerance: float) -> bool:
    """Tell whether backward passes made the same gradient in both runs, and as much of each parameter's is applied.

    Or hooks on parameters have clipped it while it was made, and the update has the same bits.
    """
    exact = [(one.arrays["applied/norm"][row], one.arrays["weight/digest"][row]) for one in (trace, other)]
    if all(map(torch.equal, *exact)):
        return True
    if not all(one.arrays["rank/micro"][row].any() for one in (trace, other)):
        return False
    ours, theirs = (made_by_backward(one, row) for one in (trace, other))
    same = float(torch.linalg.vector_norm(ours - theirs)) <= tolerance * float(torch.linalg.vector_norm(theirs))
    applied, applied_there = (one.arrays["applied/norm"][row] for one in (trace, other))
    return same and torch.allclose(applied, applied_there, rtol=tolerance, atol=0.0)


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

_NO_PART = 0.5
"""The same, at most, however wide a floor is that is assumed: a number that is off by more is another one."""

_FLOORS = 2
"""Floors of the gradient by which its norm may be off, from which each run computes what it keeps."""
