"""The floor of two runs: the reference's, with what may part these two, and no twin has shown."""

from abc import ABC, abstractmethod

from torch import Tensor

from trainparity.parity.noise.distance import Compared
from trainparity.parity.noise.floor import Floor
from trainparity.parity.recording.trace import Trace


class Widened(ABC):
    """A floor that widens another one, each kind once."""

    def __init__(self, reference: Trace, floor: Floor) -> None:
        self._reference, self._floor = reference, floor
        self.calibrated, self.same_samples = floor.calibrated, floor.same_samples
        self.kept_samples, self.flaw = floor.kept_samples, floor.flaw
        self._floors: dict[Compared, Tensor] = {}

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        if kind not in self._floors:
            self._floors[kind] = self._widen(kind, self._floor[kind])
        return self._floors[kind]

    def outgrown(self, row: int) -> tuple[str, str] | None:
        """Say why what parts from a step's row on may come of what widens the floor, and what to do; None: it may not.

        As where it has moved the weights as no twin did.
        """
        return self._floor.outgrown(row) if isinstance(self._floor, Widened) else None

    @abstractmethod
    def _widen(self, kind: Compared, floor: Tensor) -> Tensor: ...
