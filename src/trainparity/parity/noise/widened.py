"""The floor of two runs: the reference's, with what may part these two, and no twin has shown."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, distances, norms
from trainparity.parity.noise.floor import NOTHING_ELSE, Floor, running_maximum
from trainparity.parity.noise.normalisation import amplified, before_each_step, passed_on
from trainparity.parity.recording.trace import Trace


def parted(reference: Trace, right: Trace, gradient: Tensor) -> Tensor:
    """Return how far apart the weights are that two runs' steps start from, all together: float64 [T, 1].

    Without those that rounding alone moves, by the floor of their gradients [T, P + 1]: as a bias in front of a
    BatchNorm, of which nothing is made.
    """
    lengths, apart = norms(reference, "start").double(), distances(reference, right, "start")[:, :-1]
    still = (gradient[:, :-1] >= NOTHING_ELSE).any(0)
    moved = torch.linalg.vector_norm((apart * lengths).masked_fill(still, 0.0), dim=1, keepdim=True)
    found: Tensor = moved / torch.linalg.vector_norm(lengths, dim=1, keepdim=True)
    return found.nan_to_num(0.0, posinf=0.0)


class Widened(ABC):
    """A floor that widens another one, each kind once."""

    def __init__(self, reference: Trace, floor: Floor) -> None:
        self._reference, self._floor = reference, floor
        self.calibrated, self.same_samples = floor.calibrated, floor.same_samples
        self.kept_samples, self.flaw, self.losses = floor.kept_samples, floor.flaw, floor.losses
        self._floors: dict[Compared, Tensor] = {}

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        if kind not in self._floors:
            self._floors[kind] = self._widen(kind, self._floor[kind])
        return self._floors[kind]

    def nearest(self, kind: Compared) -> Tensor:
        """Return how far the twin is that is the nearest: float64 [T, tensors + 1]; without twins the floor."""
        return self._floor.nearest(kind)

    def outgrown(self, row: int) -> tuple[str, str] | None:
        """Say why what parts from a step's row on may come of what widens the floor, and what to do; None: it may not.

        As where it has moved the weights as no twin did.
        """
        return self._floor.outgrown(row) if isinstance(self._floor, Widened) else None

    @abstractmethod
    def _widen(self, kind: Compared, floor: Tensor) -> Tensor: ...


FURTHER = 4
"""Times that gradients are further apart than all weights together, once these have parted."""


class AfterParting(Widened):
    """A floor that excuses what gradients are apart, and what this makes of later steps."""

    def __init__(self, reference: Trace, floor: Floor, gradient: Tensor, back: Tensor, moved: Tensor) -> None:
        """Take how far apart gradients are, what comes back to modules, and the rest: float64 [T, 1 or as a floor's].

        The rest is what modules return, and buffers, for weights that have parted.
        """
        super().__init__(reference, floor)
        self._gradient, self._back, self._moved = gradient, back, moved

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        if kind == "gradient" or kind == "activation_gradient":
            return torch.maximum(floor, self._gradient if kind == "gradient" else self._back)
        if kind == "activation" or kind == "buffer":
            return torch.maximum(floor, self._moved)
        if kind == "start":
            return torch.maximum(floor, before_each_step(self._reference, self["weight"]))
        # Momentum carries on what gradients were apart.
        gradient = running_maximum(self._reference, self._gradient)
        for made_of in (passed_on, amplified):
            floor = torch.maximum(floor, made_of(self._reference, kind, gradient))
        return floor
