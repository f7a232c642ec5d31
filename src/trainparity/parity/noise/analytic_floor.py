"""The noise floor without twins: a bound that is assumed of rounding, not measured."""

from functools import cached_property

import torch
from torch import Tensor

from trainparity.parity.noise.cancelling_biases import (
    of_cancelling_biases,
    of_means_behind,
    of_terms_that_cancel,
    summed,
)
from trainparity.parity.noise.distance import Compared
from trainparity.parity.noise.floor import running_maximum
from trainparity.parity.noise.jumps import jumping, orthogonalised
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.noise.normalisation import amplified, of_nothing, passed_on
from trainparity.parity.noise.rounding import rounding
from trainparity.parity.noise.unrecorded_steps import left_to_rounding
from trainparity.parity.recording.trace import Trace


class AnalyticFloor:
    """A bound used without twins: one rounding, times a growth that is assumed, not measured.

    Errors of sums of n terms grow as sqrt(n) (Higham, Accuracy and Stability, 2002, section 4.2): the largest
    tensor's row length stands for n. Each step of a window adds the same again, times the steps before it. What an
    update makes of a gradient is at least as far off: weights that are stored finely hide nothing of bf16 gradients.
    """

    calibrated = False
    same_samples = False
    kept_samples = frozenset[int]()
    flaw: str | None = None

    def __init__(self, reference: Trace) -> None:
        self.reference = reference
        self.losses = torch.full((len(reference.layout.steps),), torch.inf, dtype=torch.float64)
        self._floors: dict[Compared, Tensor] = {}

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        if kind not in self._floors:
            self._floors[kind] = self._assume(kind)
        return self._floors[kind]

    def nearest(self, kind: Compared) -> Tensor:
        """Return the floor: there are no twins."""
        return self[kind]

    def _assume(self, kind: Compared) -> Tensor:
        floor = rounding(self.reference, kind) * self._growth
        if kind == "gradient" and not is_coarse(self.reference.layout):  # there sums are made in fp32
            floor = torch.maximum(floor, rounding(self.reference, kind) * summed(self.reference)[:, None].sqrt())
        if kind == "gradient":
            floor = torch.maximum(floor, of_cancelling_biases(self.reference, to_one_side=True))
        if kind == "buffer":
            floor = torch.maximum(floor, of_means_behind(self.reference, self["weight"]))
        if kind in ("update", "weight"):
            for of_gradients in (passed_on, amplified, orthogonalised):
                floor = torch.maximum(floor, of_gradients(self.reference, kind, self["gradient"]))
            floor = torch.maximum(floor, jumping(self.reference, kind, None))
            floor = torch.maximum(floor, of_nothing(self.reference, kind, self._cancelling))
        if kind in ("start", "weight"):
            floor = torch.maximum(floor, left_to_rounding(self.reference, kind, self["update"]))
        return running_maximum(self.reference, floor)

    @cached_property
    def _cancelling(self) -> Tensor:
        return of_terms_that_cancel(self.reference)

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
