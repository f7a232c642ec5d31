"""Steps in which modules return the same bits in both runs: no number lies on the other side of a kink there."""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import SUMMED_OTHERWISE, Compared, distances, norms, sizes
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.twins import FEW, seen_as
from trainparity.parity.noise.widened import Widened
from trainparity.parity.recording.names import depends_on_cut, inside
from trainparity.parity.recording.trace import Trace


def behind_same_passes(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return a floor of two runs that excuses no kink in steps whose forward passes, from equal weights, are the same.

    Twins start from moved weights: kinks that they have met, and what these have made of later steps, widen the floor
    for all. Here gradients differ by the rounding of backward passes alone, or by a fault.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of both.
    """
    if is_coarse(left.layout) or left.layout.precision != right.layout.precision:
        return floor
    rows = _rows(left, right)
    return _WithoutKinks(left, floor, rows) if bool(rows.any()) else floor


def _rows(left: Trace, right: Trace) -> Tensor:
    """Return in which steps all of the reference's modules are seen to make the same of the same: bool [T]."""
    names = [name for name in left.layout.activations if not depends_on_cut(name)]
    none = torch.zeros(len(left.layout.steps), dtype=torch.bool)
    if not inside(names) or not set(names) <= set(right.layout.activations):
        return none
    if any(trace.arrays[key].any() for trace in (left, right) for key in _ELSEWHERE):
        return none
    places = [left.layout.activations.index(name) for name in names]
    apart = distances(left, seen_as(left, right), "activation")[:, places]
    alike = torch.stack([_equal(left, right, key) for key in ("rank/rows", "rank/samples")]).all(0)
    same = (apart <= torch.where(alike, 0.0, SUMMED_OTHERWISE)[:, None]).all(1)
    equal_weights = (distances(left, right, "start") == 0).all(1)
    found: Tensor = equal_weights & _equal(left, right, "samples") & same
    return found & (norms(left, "activation")[:, places] > 0).any(1)


def _equal(left: Trace, right: Trace, key: str) -> Tensor:
    """Return in which steps an array is the same in both runs: bool [T]."""
    ours, theirs = left.arrays[key], right.arrays[key]
    if ours.shape != theirs.shape:
        return torch.zeros(len(ours), dtype=torch.bool)
    return (ours == theirs).flatten(1).all(1) if ours.ndim > 1 else ours == theirs


class _WithoutKinks(Widened):
    """A floor that is as narrow in some steps as without kinks."""

    def __init__(self, reference: Trace, floor: Floor, rows: Tensor) -> None:
        super().__init__(reference, floor)
        self._rows = rows

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        if kind != "gradient" and kind != "activation_gradient":
            return floor
        nearest, windows = self._floor.nearest(kind), self._reference.layout.windows()
        # Of sums that cancel, which later steps need not show.
        noise = torch.cat([nearest[window][:1].expand_as(nearest[window]) for window in windows])
        rounded = max(_ROUNDED, _UNITS * self._reference.layout.unit_roundoff)
        narrow = (_TWINS * noise).clamp(min=rounded) / margin_of(self._reference.layout, MARGIN)
        if kind == "gradient":  # of one number, as a bias in front of a softmax, what is left over is any by chance
            narrow[:, :-1][:, sizes(self._reference.layout) < FEW] = torch.inf
        return torch.where(self._rows[:, None], torch.minimum(floor, narrow), floor)


_ELSEWHERE = ("closure/again", "made_elsewhere", "judged_elsewhere")
"""What tells that gradients are made of passes that are not compared: at other weights, or through other models."""

_ROUNDED, _UNITS = 1e-3, 16
"""Part of a gradient, and in units of roundoff, that backward passes' rounding makes at most; 20 were seen of fp32."""

_TWINS = 16
"""Times further apart than the twin that is the nearest in a window's first step, which few kinks are met in."""
