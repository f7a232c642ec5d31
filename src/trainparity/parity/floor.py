"""The noise floor: how far correct runs drift apart from rounding alone, measured on twins of the reference."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.distance import KINDS, Compared, distances, rounding
from trainparity.parity.trace import Trace


class NoiseFloor:
    """floor(t): the largest distance reference - twin up to step t of t's window, by kind and tensor.

    A twin starts each window half an ulp away and visits each global batch in another order (perturbation-
    calibrated thresholds: TTrace, arXiv 2506.09280). The floor is never below what one rounding makes.
    """

    def __init__(self, reference: Trace, twins: Sequence[Trace]) -> None:
        """Measure the floor between a reference and at least one twin with the reference's layout."""
        if not twins:
            raise ValueError("a noise floor needs at least one twin of the reference")
        self.reference = reference
        self._floors = {kind: self._measure(twins, kind) for kind in KINDS}

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        return self._floors[kind]

    def _measure(self, twins: Sequence[Trace], kind: Compared) -> Tensor:
        apart = torch.stack([distances(self.reference, twin, kind) for twin in twins]).amax(0)
        floor = torch.maximum(apart, rounding(self.reference, kind))
        if not floor.numel():
            return floor
        windows = torch.split(floor, self.reference.layout.window)
        return torch.cat([window.cummax(0).values for window in windows])
