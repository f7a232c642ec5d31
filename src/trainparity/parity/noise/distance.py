"""How far two runs are apart at each step, tensor by tensor."""

from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.recording.trace import Layout, Trace
from trainparity.records.base import INFINITE

Judged = Literal["gradient", "update", "weight", "buffer"]
Compared = Judged | Literal["activation", "activation_gradient", "start"]
KINDS: tuple[Judged, ...] = ("gradient", "update", "weight", "buffer")
"""What the verdict is about, in the order in which a step makes them: the first that is off is nearest to the cause.

Activations and the weights that a step starts from are compared only to explain a difference.
"""

ALL = "(all)"
"""The name of all tensors of a kind together, in the last column."""


def names(trace: Trace, kind: Compared) -> list[str]:
    """Return the columns' names of a kind: its tensors, then `ALL`."""
    seen = trace.layout.activations
    named = {"buffer": trace.layout.buffers, "activation": seen, "activation_gradient": seen}
    return [*named.get(kind, trace.layout.parameters), ALL]


def distances(left: Trace, right: Trace, kind: Compared) -> Tensor:
    """Return the relative L2 distance |left - right| / |left|: float64 [T, tensors + 1].

    A tensor that is zero in the left run is measured by the length of all tensors of its kind together. Where both
    runs overflowed and made no update, as fp16's loss scaler sees to, the distance is zero, and so is that of equal
    masks of infinities. It is infinite where one run is not finite, and NaN where both are not: then nothing is known.
    """
    ours, theirs = norms(left, kind), norms(right, kind)
    apart = torch.linalg.vector_norm(sketches(left, kind) - sketches(right, kind), dim=-1)
    lost = ~ours.isfinite(), ~theirs.isfinite()
    apart = torch.where(lost[0] ^ lost[1], torch.inf, torch.where(lost[0] & lost[1], torch.nan, apart))
    masked = (lost[0] & lost[1] & _same_constants(left, right)) if kind == "buffer" else _overflowed(left, right, lost)
    apart, ours = apart.masked_fill(masked, 0.0), ours.masked_fill(masked, 0.0)
    if kind in ("gradient", "update", "weight"):
        nobodys = _nobodys(left, right, kind)
        if kind != "gradient":
            nobodys = nobodys | _moved_beside(left, right)
        apart, ours = apart.masked_fill(nobodys, 0.0), ours.masked_fill(nobodys, 0.0)
    return relative(apart, ours)


def sizes(layout: Layout) -> Tensor:
    """Return how many numbers each parameter has: int64 [P]."""
    return torch.tensor([*layout.numbers().values()], dtype=torch.int64)


def relative(apart: Tensor, lengths: Tensor) -> Tensor:
    """Return distances [T, n] over lengths [T, n], those of all together behind: [T, n + 1]; of nothing over all's."""
    over = with_all(lengths)
    return ratio(with_all(apart), torch.where(over == 0, over[:, -1:], over))


def _nobodys(left: Trace, right: Trace, kind: Judged) -> Tensor:
    """Return the parameters that neither run's optimizer holds at a step, and that never move so: bool [T, P].

    An optimizer that holds one without a gradient, as of a frozen layer, applies none either: of gradients the other
    run's decides nothing then.
    """
    held = [trace.arrays["held"] for trace in (left, right)]
    if kind == "gradient":
        held = [ours & (norms(trace, kind) != 0) for ours, trace in zip(held, (left, right), strict=True)]
    nobodys = ~(held[0] | held[1])
    moved = [(sketches(trace, "update") != 0).any(2) & nobodys for trace in (left, right)]
    return nobodys & ~(moved[0] | moved[1]).any(0)


def _moved_beside(left: Trace, right: Trace) -> Tensor:
    """Return the parameters that one run alone moves within a step, and both have moved alike after it: bool [T, P].

    As an average that a hook of the optimizer's step updates, or the loop after the step. No optimizer holds them.
    """
    beside = ~(left.arrays["held"] | right.arrays["held"]).any(0)
    if not beside.any():  # as of most models
        return torch.zeros_like(left.arrays["held"])
    moves = torch.stack([torch.linalg.vector_norm(sketches(trace, "update"), dim=2) for trace in (left, right)])
    found: Tensor = ((moves[0] > 0) ^ (moves[1] > 0)) & beside
    if not found.any():
        return found
    ours, theirs = (_next_starts(trace) for trace in (left, right))
    units = torch.tensor(list(left.layout.stored().values()), dtype=torch.float64)
    apart, lengths = (torch.linalg.vector_norm(each, dim=2) for each in (ours - theirs, ours))
    alike: Tensor = apart <= torch.maximum(_AVERAGED * units * lengths, _OF_A_MOVE * moves.amax(0))
    return found & alike


def _next_starts(trace: Trace) -> Tensor:
    """Return the sketches of weights before the next step that is recorded, or at the end: [T, P, S]; NaN: unknown."""
    starts = trace.arrays["start/sketch"]
    end = trace.arrays.get("end/sketch", torch.full_like(starts[0], torch.nan))
    return torch.cat([starts[1:], end[None]])


_AVERAGED = 16
"""Roundings of an average of weights, which may be a sum or made by `lerp`."""

_OF_A_MOVE = 0.1
"""Part of its move by which one may be apart, as the weights that it follows are; another momentum is a fact."""


def without_nobodys(left: Trace, right: Trace) -> tuple[Trace, Trace]:
    """Return two traces without the gradients that neither optimizer applies, of parameters that never move so.

    They are zero there: another optimizer's may be scaled, or clipped already, when this one makes its step. Their
    hashes stay, as not all bits are equal then.
    """
    nobodys = _nobodys(left, right, "gradient")
    if not nobodys.any():
        return left, right
    return _without(left, nobodys), _without(right, nobodys)


def _without(trace: Trace, unheld: Tensor) -> Trace:
    ours = ("gradient/sketch", "gradient/norm", "applied/norm")
    kept = {key: trace.arrays[key].clone() for key in ours if key in trace.arrays}
    for array in kept.values():
        array[unheld] = 0
    return Trace(trace.layout, trace.arrays | kept)


def _same_constants(left: Trace, right: Trace) -> Tensor:
    """Return the buffers of the same bits in all steps of both runs, as a mask of infinities: bool [B]."""
    ours, theirs = (trace.arrays["buffer/digest"] for trace in (left, right))
    return (ours == ours[:1]).all(0) & (ours == theirs).all(0)


def _overflowed(left: Trace, right: Trace, lost: tuple[Tensor, Tensor]) -> Tensor:
    """Return the steps in which both runs lost some tensors of a kind, and neither changed a weight: bool [T, 1].

    Which of the tensors overflow is a matter of rounding.
    """
    still = [(sketches(trace, "update") == 0).flatten(1).all(1) for trace in (left, right)]
    return (still[0] & still[1] & lost[0].any(1) & lost[1].any(1))[:, None]


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


def multiples(left: Trace, right: Trace, kind: Compared, floor: Tensor) -> Tensor:
    """Return distance / floor: float64 [T, tensors + 1]; NaN where the distance or the floor is not known."""
    return times(distances(left, right, kind), floor)


def times(apart: Tensor, floor: Tensor) -> Tensor:
    """Return how many times the floor distances are."""
    return (apart / floor).clamp(max=INFINITE)


SUMMED_OTHERWISE = 1e-12
"""Part by which sums of the same numbers in float64 differ in another order; 2e-16 was seen."""


def with_all(values: Tensor) -> Tensor:
    """Append the L2 norm over all tensors: [T, n] to [T, n + 1]."""
    return torch.cat([values, torch.linalg.vector_norm(values, dim=1, keepdim=True)], dim=1)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide; nothing over nothing is nothing."""
    return torch.where(numerator == 0, 0.0, numerator / denominator)
