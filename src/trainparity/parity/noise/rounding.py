"""How far rounding each number once takes what two runs are compared by."""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, names, norms, ratio, with_all
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE


def rounding(trace: Trace, kind: Compared) -> Tensor:
    """Return the distance that rounding each number once can make: float64 [T, tensors + 1].

    The unit roundoff of the format computed in, for weights of the one that each is stored in. For an update it is
    multiplied by |weight| / |update|, as the rounded weights hold the update.
    """
    layout, stored = trace.layout, list(trace.layout.stored().values())
    of_weights = kind in ("update", "start", "weight")
    unit = torch.tensor([*stored, max(stored)] if of_weights else layout.unit_roundoff, dtype=torch.float64)
    if kind == "buffer":
        return torch.tensor([*_units_of_buffers(trace), layout.unit_roundoff], dtype=torch.float64) * _cancellation(
            trace
        )
    if kind == "gradient" and not is_coarse(layout):
        return unit * _shrunk(trace)
    if kind != "update":
        return unit.expand(len(trace.layout.steps), len(names(trace, kind)))
    update = norms(trace, "update")
    rounded = torch.maximum(stored_rounding(trace), unit[:-1] * update)
    return torch.where(with_all(update) > 0, ratio(with_all(rounded), with_all(update)), unit)


def _units_of_buffers(trace: Trace) -> list[float]:
    """Return by which part of itself rounding moves each buffer: those that no step changes hardly, whatever it is."""
    layout, constant = trace.layout, never_change(trace)
    still = layout.unit_roundoff * (_OF_A_TABLE if is_coarse(layout) else 1)
    units = {name: still if name in constant else layout.unit_roundoff for name in layout.buffers}
    return [UNIT_ROUNDOFF["fp64"] if is_count(name) else unit for name, unit in units.items()]


_OF_A_TABLE = 1 / 8
"""Part of a coarse format's unit roundoff: within the margin a table may be rounded to that format once."""


def never_change(trace: Trace) -> set[str]:
    """Return the buffers that are the same after every traced step; of one step nothing is known."""
    digests = trace.arrays["buffer/digest"]
    still = ((digests == digests[:1]).all(0) & (len(digests) > 1)).tolist()
    return {name for name, stays in zip(trace.layout.buffers, still, strict=True) if stays}


def stored_rounding(trace: Trace, rows: int | slice = slice(None)) -> Tensor:
    """Return how far one rounding to the format that it is stored in moves a weight: float64 [T, P], or [P] of a row.

    Zero for those that are not trained, as the frozen base of adapters: they take no part in the update.
    """
    frozen, held, start, weight = (trace.arrays[name][rows] for name in ("frozen", "held", *_OF_AN_UPDATE))
    still = (frozen | ~held) & (torch.linalg.vector_norm(weight - start, dim=-1) == 0)
    units = torch.tensor(list(trace.layout.stored().values()), dtype=torch.float64)
    return (units * norms(trace, "weight")[rows]).masked_fill(still, 0.0)


_OF_AN_UPDATE = ("start/sketch", "weight/sketch")


_TERMS = 4
"""How many times shorter a gradient may become before its sum is taken to cancel."""


def _shrunk(trace: Trace) -> Tensor:
    """Return how many times its own last place a gradient is rounded: float64 [T, P + 1], 1 but near a minimum.

    There the terms of its sum stay as long as they were, and cancel.
    """
    lengths = with_all(norms(trace, "gradient")).double()
    longest = lengths.nan_to_num(0.0, posinf=0.0).cummax(0).values
    shrunk = torch.where(lengths > 0, longest / (_TERMS * lengths), 1.0).nan_to_num(1.0).clamp(min=1, max=INFINITE)
    return torch.maximum(shrunk, shrunk[:, -1:])


def is_count(buffer: str) -> bool:
    """Tell whether a buffer, by its name, counts the batches that BatchNorm has seen: no format rounds that."""
    return buffer.endswith("num_batches_tracked")


def _cancellation(trace: Trace) -> Tensor:
    """Return how many times its own last place a buffer is rounded: float64 [T, B + 1], 1 but for running means.

    A running mean is a sum over the batch in which most cancels: it rounds as its terms do, whose length is told by the
    running variance beside it.
    """
    lengths = norms(trace, "buffer")
    terms = lengths.clone()
    index = {name: place for place, name in enumerate(trace.layout.buffers)}
    for name, place in index.items():
        variance = (
            index.get(f"{name.removesuffix('running_mean')}running_var") if name.endswith("running_mean") else None
        )
        if variance is not None:
            channels = trace.layout.buffers[name][0] if trace.layout.buffers[name] else 1
            # |std|^2 is the sum of the variances: at most sqrt(channels) times their L2 norm.
            terms[:, place] = (channels**0.5 * lengths[:, variance] + lengths[:, place] ** 2).sqrt()
    return ratio(with_all(terms), with_all(lengths)).nan_to_num(1.0, posinf=INFINITE).clamp(min=1)
