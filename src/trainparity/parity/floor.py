"""The noise floor: how far correct runs drift apart from rounding alone, measured on twins of the reference."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from trainparity.parity.distance import KINDS, Compared, distances, rounding
from trainparity.parity.recording.trace import Trace

_COMPARED: tuple[Compared, ...] = (*KINDS, "activation", "start")


class Floor(Protocol):
    """How far correct runs may be apart."""

    calibrated: bool
    """Whether it was measured on twins."""

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""


class NoiseFloor:
    """floor(t): the largest distance reference - twin up to step t of t's window, by kind and tensor.

    A twin starts each window half an ulp away and visits each global batch in another order (perturbation-
    calibrated thresholds: TTrace, arXiv 2506.09280). The floor is never below what one rounding makes.
    """

    calibrated = True

    def __init__(self, reference: Trace, twins: Sequence[Trace]) -> None:
        """Measure the floor between a reference and at least one twin with the reference's layout."""
        if not twins:
            raise ValueError("a noise floor needs at least one twin of the reference")
        self.reference = reference
        self._floors = {kind: self._measure(twins, kind) for kind in _COMPARED}

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        return self._floors[kind]

    def _measure(self, twins: Sequence[Trace], kind: Compared) -> Tensor:
        apart = torch.stack([distances(self.reference, twin, kind) for twin in twins]).amax(0)
        return _running_maximum(self.reference, torch.maximum(apart, rounding(self.reference, kind)))


class AnalyticFloor:
    """A bound for want of twins: one rounding, times a growth that is assumed, not measured.

    Errors of sums of n terms grow as sqrt(n) (Higham, Accuracy and Stability, 2002, section 4.2): the largest
    tensor's row length stands for n. Each step of a window adds the same again, times the steps before it.
    """

    calibrated = False

    def __init__(self, reference: Trace) -> None:
        self.reference = reference

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        return _running_maximum(self.reference, rounding(self.reference, kind) * self._growth)

    @cached_property
    def _growth(self) -> Tensor:
        layout = self.reference.layout
        terms = max((max(shape, default=1) for shape in layout.parameters.values()), default=1)
        since = torch.cat(
            [
                torch.tensor([layout.steps[i] - layout.steps[w.start] for i in range(w.start, w.stop)])
                for w in layout.windows()
            ]
        )
        growth: Tensor = (terms**0.5 * (1.0 + since.double()) ** 2)[:, None]
        return growth


def _running_maximum(reference: Trace, floor: Tensor) -> Tensor:
    """Let the floor never fall within a window."""
    if not floor.numel():
        return floor
    return torch.cat([floor[window].cummax(0).values for window in reference.layout.windows()])
