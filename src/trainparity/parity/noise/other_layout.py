"""What gradients are apart where one run alone has its numbers channels last: a BatchNorm's means round to one side."""

import torch
from torch import Tensor

from trainparity.parity.noise.cancelling_biases import before_batchnorms
from trainparity.parity.noise.distance import Compared, distances, norms
from trainparity.parity.noise.floor import Floor, running_maximum
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.normalisation import amplified, before_each_step, decomposed, in_lengths, passed_on
from trainparity.parity.noise.widened import Widened
from trainparity.parity.recording.conditions import MEMORY_FORMAT
from trainparity.parity.recording.trace import Trace


def in_other_layout(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return the floor of two runs, of which one may lay out its numbers otherwise.

    Other kernels compute there. A BatchNorm's backward pass takes a mean from all places of a channel; where that is of
    many rows it rounds by as many last places, and moves all places alike: so far sums over them are apart.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of the reference, whose twins run its own kernels.
    """
    formats = {trace.layout.environment.get(MEMORY_FORMAT) for trace in (left, right)}
    if len(formats) < 2 or None in formats or is_coarse(left.layout) or decomposed(left.layout).any():
        return floor  # updates of matrices jump as far
    means = _of_long_means(left)
    return _InOtherLayout(left, right, floor, means) if means.any() else floor


def _of_long_means(reference: Trace) -> Tensor:
    """Return the relative distances of gradients that long means make: float64 [T, P + 1]."""
    layout, lengths = reference.layout, norms(reference, "gradient").double()
    floor = torch.zeros(len(layout.steps), len(layout.parameters) + 1, dtype=torch.float64)
    part = _LAST_PLACES * layout.unit_roundoff / margin_of(layout, MARGIN)
    for place, _, rows, longer in before_batchnorms(reference):
        floor[:, place] = part * rows * longer.clamp(min=1)
    floor = floor.nan_to_num(0.0, posinf=0.0)
    floor[:, -1] = in_lengths(reference, "gradient", floor[:, :-1] * lengths)[:, -1]
    return floor


_LAST_PLACES = 4
"""Last places, for each row, that a mean over rows rounds by at most; 1 was seen, of 16,384 rows."""

_FURTHER = 4
"""Times that gradients are further apart than all weights together, once these have parted."""


class _InOtherLayout(Widened):
    """A floor that excuses what long means are apart, and what this makes of later steps."""

    def __init__(self, reference: Trace, right: Trace, floor: Floor, means: Tensor) -> None:
        super().__init__(reference, floor)
        self._moved = _FURTHER * distances(reference, right, "start")[:, -1:]
        self._gradient = torch.maximum(means, self._moved)

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        if kind == "gradient":
            return torch.maximum(floor, self._gradient)
        if kind == "activation" or kind == "activation_gradient" or kind == "buffer":
            return torch.maximum(floor, self._moved)
        if kind == "start":
            return torch.maximum(floor, before_each_step(self._reference, self["weight"]))
        gradient = running_maximum(self._reference, self._gradient)
        for made_of in (passed_on, amplified):
            floor = torch.maximum(floor, made_of(self._reference, kind, gradient))
        return floor
