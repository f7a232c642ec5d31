"""What an `equivalent` could have seen: the smallest relative errors that would have been `different`."""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import KINDS, Judged, names, norms, ratio
from trainparity.parity.noise.floor import NOTHING_ELSE, Floor
from trainparity.parity.noise.rounding import stored_rounding
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.verdict import Resolution


def gradient_width(reference: Trace, floor: Floor) -> float:
    """Return the largest floor of the whole gradient where a window starts: rounding has not grown there yet."""
    return float(floor["gradient"][reference.layout.rows_that_begin(), -1].amax())


def update_width(reference: Trace, floor: Floor) -> float:
    """Return the largest floor of the whole update there."""
    return float(update_noise(reference, floor)[reference.layout.rows_that_begin()].amax())


def update_noise(reference: Trace, floor: Floor) -> Tensor:
    """Return the floor of the whole update, float64 [T]; zero where that is how the weights' format rounds.

    That may be all of a small update, as at the begin of a warm-up, or of weights in bf16.
    """
    lengths = norms(reference, "update"), stored_rounding(reference)
    update, rounding = (torch.linalg.vector_norm(each, dim=1) for each in lengths)
    width = torch.minimum(floor["update"][:, -1], _without_noise(reference, floor))
    rounded = _ROUNDINGS * rounding >= width * update
    return torch.where(rounded, 0.0, width).nan_to_num(0.0)


def _without_noise(reference: Trace, floor: Floor) -> Tensor:
    """Return the floor of the whole update of parameters whose gradient is more than rounding: float64 [T].

    That of a bias in front of a normalisation is nothing else, and Adam makes full steps of it.
    """
    means = floor["gradient"][:, :-1] < NOTHING_ELSE
    lengths = torch.where(means, norms(reference, "update"), 0.0)
    apart = torch.where(means, floor["update"][:, :-1] * lengths, 0.0)
    widths = (torch.linalg.vector_norm(each, dim=1) for each in (apart, lengths))
    return ratio(*widths).nan_to_num(torch.inf)


_ROUNDINGS = 4
"""Roundings of weights by which the updates of runs whose rounding is independent may be apart."""


def resolutions(reference: Trace, floor: Floor, margin: float, of_updates: float) -> list[Resolution]:
    """Return the resolution of each kind of tensor that the reference has; updates have a margin of their own."""
    kinds = [kind for kind in KINDS if len(names(reference, kind)) > 1]
    return [_resolution(reference, floor, of_updates if kind == "update" else margin, kind) for kind in kinds]


def _resolution(reference: Trace, floor: Floor, margin: float, kind: Judged) -> Resolution:
    """Multiply the floor where windows start, of several the widest, by the margin: rounding is least there."""
    seen = (margin * floor[kind][reference.layout.rows_that_begin()]).amax(0).clamp(max=INFINITE)
    weakest = int(seen[:-1].argmax())
    return Resolution(
        kind=kind, whole=float(seen[-1]), weakest=float(seen[weakest]), tensor=names(reference, kind)[weakest]
    )
