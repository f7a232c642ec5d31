"""What gradients are apart for the jumps of earlier updates, as of Newton and Schulz's iteration in bf16."""

import torch
from torch import Tensor

from trainparity.parity.noise.assumed import OF_TWINS
from trainparity.parity.noise.distance import Compared, distances
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.jumps import orthogonalised
from trainparity.parity.noise.normalisation import before_each_step, decomposed, passed_on
from trainparity.parity.noise.widened import Widened
from trainparity.parity.recording.trace import Trace


def after_jumps(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return the floor of two runs whose weights a jump may have parted: gradients are as far apart, or further.

    Each parameter's, also of those that another optimizer updates. Where a step starts from the same bits in both runs
    nothing has jumped, and nothing is excused.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of the reference.
    """
    if not decomposed(left.layout).any():
        return floor
    return _AfterJumps(left, right, floor)


class _AfterJumps(Widened):
    """A floor whose gradients are at least as far apart as weights, all together, where steps start from other ones."""

    def __init__(self, reference: Trace, right: Trace, floor: Floor) -> None:
        super().__init__(reference, floor)
        self._right, self._parted = right, distances(reference, right, "start")[:, -1] > 0
        moved = before_each_step(reference, floor["weight"])[:, -1:] * (1 if floor.calibrated else _FURTHER)
        self._gradient = torch.where(self._parted[:, None], moved, 0.0).expand_as(floor["gradient"])

    def outgrown(self, row: int) -> tuple[str, str] | None:
        """Say why what parts from a row on may come of jumps, where no twin shows what these make of gradients."""
        near = distances(self._reference, self._right, "gradient")[row, -1] <= _OF_KINKS
        if self.calibrated or not self._parted[row] or not near:
            return super().outgrown(row)
        return (
            "updates of matrices jump, as their iteration in bf16 does, and weights have parted before step "
            f"{self._reference.layout.steps[row]}: without twins, right runs may be as far apart from there",
            OF_TWINS,
        )

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        if kind == "gradient":
            return torch.maximum(floor, self._gradient)
        if kind == "start":
            return torch.maximum(floor, before_each_step(self._reference, self["weight"]))
        if kind == "buffer" and not self.calibrated:  # as means of what matrices make
            return torch.maximum(floor, self._gradient[:, -1:])
        if kind in ("update", "weight"):
            # What is made of noisy matrices twins have shown.
            for made_of in (passed_on,) if self.calibrated else (passed_on, orthogonalised):
                floor = torch.maximum(floor, made_of(self._reference, kind, self._gradient))
        return floor


_OF_KINKS = 0.25
"""Part of the whole gradient up to which units that turn for some samples may move it; 0.1 was seen, of 8 channels."""

_FURTHER = 16
"""Times that gradients are further apart than the weights that they are of, where no twin shows it; 4.5 were seen."""
