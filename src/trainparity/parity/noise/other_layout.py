"""What gradients are apart where one run alone has its numbers channels last: a BatchNorm's means round to one side."""

import torch
from torch import Tensor

from trainparity.parity.noise.cancelling_biases import before_batchnorms, last_batchnorm, of_means_behind
from trainparity.parity.noise.distance import Compared, norms
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.normalisation import decomposed, in_lengths
from trainparity.parity.noise.widened import FURTHER, AfterParting, parted
from trainparity.parity.recording.conditions import MEMORY_FORMAT
from trainparity.parity.recording.trace import Layout, Trace


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


def _not_behind(layout: Layout) -> Tensor:
    """Return the parameters up to the last BatchNorm, and all together: bool [P + 1].

    A layer behind that is given what twins show, and tells of the loss.
    """
    last = last_batchnorm(layout)
    modules = (name.rpartition(".")[0] for name in layout.parameters)
    up_to = [name not in layout.activations or layout.activations.index(name) <= last for name in modules]
    return torch.tensor([*up_to, True])


class _InOtherLayout(AfterParting):
    """A floor that excuses what long means are apart, and what this makes of later steps."""

    def __init__(self, reference: Trace, right: Trace, floor: Floor, means: Tensor) -> None:
        moved = FURTHER * parted(reference, right, floor["gradient"])
        gradient = torch.where(_not_behind(reference.layout), torch.maximum(means, moved), 0.0)
        super().__init__(reference, floor, gradient, moved, moved)

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        if kind == "buffer":
            floor = torch.maximum(floor, of_means_behind(self._reference, self["weight"]))
        return super()._widen(kind, floor)
