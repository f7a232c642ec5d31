"""Updates that differ by one small factor: Adam's bias corrections, made in single precision by one run alone.

Where the number of steps t is a tensor on the GPU, as of fused or capturable optimizers, or the step is compiled,
1 - beta^t is computed in float32: it loses as many digits as it is smaller than 1 (Higham, Accuracy and Stability,
2002, section 1.7). Each update is then longer, or shorter, by one factor: in each step of the run the same way, which
no twin shows, as its rounding points anywhere.
"""

import torch
from torch import Tensor

from trainparity.parity.distance import Compared, distances, multiples, norms, ratio, sketches, with_all
from trainparity.parity.floor import Floor
from trainparity.parity.margin import MARGIN, margin_of
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.trace import Trace


def further(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return the floor of two runs one of which goes a little further in each step; else the floor itself.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of the reference.
    """
    if not (multiples(left, right, "update", floor["update"]) > 1).any():
        return floor
    factor = _factor(left, right, floor)
    return _Further(left, floor, factor) if factor else floor


class _Further:
    """The floor of a run that is a part of its way further on: each tensor is off by that part of what it changed."""

    def __init__(self, reference: Trace, floor: Floor, part: float) -> None:
        self._reference, self._floor, self._part = reference, floor, part
        self.calibrated, self.same_samples = floor.calibrated, floor.same_samples
        self.kept_samples, self.flaw = floor.kept_samples, floor.flaw

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        changed = _changed(self._reference, kind)
        return torch.maximum(self._floor[kind], self._part * (changed + 1 if kind == "update" else changed))


def _changed(reference: Trace, kind: Compared) -> Tensor:
    """Return by how much of their lengths tensors have changed, at most, since their window began: [T, tensors + 1]."""
    found, first = sketches(reference, kind), sketches(reference, "start" if kind == "weight" else kind)
    apart = [
        torch.linalg.vector_norm(found[window] - first[window.start], dim=-1).cummax(0).values
        for window in reference.layout.windows()
    ]
    return ratio(with_all(torch.cat(apart)), with_all(norms(reference, kind))).nan_to_num(0.0, posinf=0.0)


def _factor(left: Trace, right: Trace, floor: Floor) -> float:
    """Return by which part updates of the right run are longer, or shorter; 0 where something else makes them differ.

    It shows in steps that start from the same weights and get the same gradients, in nearly all tensors whose floor
    does not hide it.
    """
    margin, width = margin_of(left.layout, MARGIN), floor["update"][:, :-1]
    alike = [(distances(left, right, kind) / floor[kind])[:, -1] <= margin for kind in _GIVEN]
    ours, theirs = (sketches(trace, "update") for trace in (left, right))
    lengths, differs = torch.linalg.vector_norm(ours, dim=-1), theirs - ours
    parts = (differs * ours).sum(-1) / lengths.square()  # [T, P]
    known = (lengths > 0) & parts.isfinite()
    stands_out = known & (torch.linalg.vector_norm(differs, dim=-1) > _STANDS_OUT * width * lengths)
    part = parts.masked_fill(~stands_out, torch.nan).nanmedian(dim=1, keepdim=True).values  # [T, 1]
    rest = torch.linalg.vector_norm(differs - part[..., None] * ours, dim=-1)
    visible = known & (_STANDS_OUT * width <= part.abs())
    shared = (visible & (rest <= _REST * part.abs() * lengths)).sum(1) >= _NEARLY_ALL * visible.sum(1)
    small = part.abs()[:, 0] <= min(_rounded(left), _rounded(right))
    seen = part.abs()[:, 0][alike[0] & alike[1] & small & visible.any(1) & shared]
    return float(seen.max()) if seen.numel() else 0.0


_GIVEN: tuple[Compared, ...] = ("start", "gradient")
"""What goes into an optimizer's step."""

_STANDS_OUT = 2
"""Floors from which on a distance is more than rounding."""

_REST = 0.5
"""Part of what differs that the factor may leave unexplained; of rounding nearly all is."""

_NEARLY_ALL = 0.75
"""Part of the tensors that must show the factor."""


def _rounded(trace: Trace) -> float:
    """Return the part of an update that 1 - beta^t in single precision can make; 0 for an optimizer without betas."""
    betas = [trace.arrays.get(f"setting/betas.{place}") for place in range(2)]
    bound = 0.0
    for beta, of_its_error in zip(betas, (1.0, 0.5), strict=True):  # the second stands under a root
        if beta is None or not 0 < (nearest := float(beta.max())) < 1:
            return 0.0
        bound += of_its_error / (1 - nearest)
    return _ROUNDINGS * UNIT_ROUNDOFF["fp32"] * bound


_ROUNDINGS = 2
"""Of beta, and of its power."""
