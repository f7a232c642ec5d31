"""How far two runs are apart at each step, tensor by tensor."""

from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE

Judged = Literal["gradient", "update", "weight", "buffer"]
Compared = Judged | Literal["activation", "start"]
KINDS: tuple[Judged, ...] = ("gradient", "update", "weight", "buffer")
"""What the verdict is about, in the order in which a step makes them: the first that is off is nearest to the cause.

Activations and the weights that a step starts from are compared only to explain a difference.
"""

ALL = "(all)"
"""The name of all tensors of a kind together, in the last column."""


def names(trace: Trace, kind: Compared) -> list[str]:
    """Return the columns' names of a kind: its tensors, then `ALL`."""
    named = {"buffer": trace.layout.buffers, "activation": trace.layout.activations}
    return [*named.get(kind, trace.layout.parameters), ALL]


def distances(left: Trace, right: Trace, kind: Compared) -> Tensor:
    """Return the relative L2 distance |left - right| / |left|: float64 [T, tensors + 1].

    Zero where both are zero, or both overflowed (fp16's loss scaler then skips the step in both runs); infinite
    where only the left is zero, or only one overflowed.
    """
    ours, theirs = norms(left, kind), norms(right, kind)
    both = ~ours.isfinite() & ~theirs.isfinite()
    difference = torch.linalg.vector_norm(sketches(left, kind) - sketches(right, kind), dim=-1)
    difference = difference.nan_to_num(nan=torch.inf, posinf=torch.inf).masked_fill(both, 0.0)
    return _ratio(_with_all(difference), _with_all(ours.masked_fill(both, 0.0)))


def sketches(trace: Trace, kind: Compared) -> Tensor:
    """Return a kind's sketches: float64 [T, tensors, sketch size]; an update's is its weights' difference."""
    if kind == "update":
        return trace.arrays["weight/sketch"] - trace.arrays["start/sketch"]
    return trace.arrays[f"{kind}/sketch"]


def norms(trace: Trace, kind: Compared) -> Tensor:
    """Return a kind's L2 norms: float64 [T, tensors]; where they were not recorded, estimated from the sketch."""
    if f"{kind}/norm" in trace.arrays:
        return trace.arrays[f"{kind}/norm"]
    lengths: Tensor = torch.linalg.vector_norm(sketches(trace, kind), dim=-1)
    return lengths


def rounding(trace: Trace, kind: Compared) -> Tensor:
    """Return the distance that rounding each number once can make: float64 [T, tensors + 1].

    The unit roundoff; for an update times |weight| / |update|, as the rounded weights hold it.
    """
    unit = torch.tensor(trace.layout.unit_roundoff, dtype=torch.float64)
    if kind != "update":
        return unit.expand(len(trace.layout.steps), len(names(trace, kind)))
    update = _with_all(norms(trace, "update"))
    amplified = unit * _ratio(_with_all(norms(trace, "weight")), update).clamp(min=1)
    return torch.where(update > 0, amplified, unit)


def multiples(left: Trace, right: Trace, kind: Compared, floor: Tensor) -> Tensor:
    """Return distance / floor: float64 [T, tensors + 1]; zero where nothing can be said."""
    # Where a twin overflowed, or moved what is zero in the reference, the floor is infinite.
    apart = distances(left, right, kind)
    return torch.where(floor.isinf(), 0.0, apart / floor).nan_to_num(posinf=INFINITE)


def _with_all(values: Tensor) -> Tensor:
    """Append the L2 norm over all tensors: [T, n] to [T, n + 1]."""
    return torch.cat([values, torch.linalg.vector_norm(values, dim=1, keepdim=True)], dim=1)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    ratio = torch.where(numerator == 0, 0.0, numerator / denominator)
    return ratio.nan_to_num(nan=torch.inf, posinf=torch.inf)
