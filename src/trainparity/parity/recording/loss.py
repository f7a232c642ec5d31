"""What is seen of a loss where backward begins: its value, its format, whether it is no sum of terms of samples."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from trainparity.parity.recording import intercept, ranks
from trainparity.parity.recording.apart import has_numbers, unseen
from trainparity.parity.recording.behind import half_format
from trainparity.parity.recording.coupling import look
from trainparity.parity.recording.formats import NumberFormat
from trainparity.parity.recording.kinds import is_dtensor


class LossHooks(intercept.Listener):
    """Looks at the loss of a step, where a backward pass begins."""

    def __init__(self, returned: Callable[[], Iterable[Tensor]], parameters: Callable[[], Iterable[Tensor]]) -> None:
        """`returned` tells what the model has returned in this micro-batch, and `parameters` what it trains."""
        self._returned, self._parameters = returned, parameters
        self.computes: NumberFormat | None = None
        """The coarsest format of two bytes in which the model computes, whoever casts to it; None: in none."""
        self._steps, self._looks = 0, 0
        self.coupled_by = ""
        """The operation by which the loss of a pass couples its samples; empty where none was seen."""
        self.sizes: list[int] = []
        """Those of its factors, where it is a product of matrices."""
        self.gathered = False
        """Whether that operation takes what the model returned on all ranks."""
        self.unit_roundoff = 0.0
        """That of the coarsest format on the way from what the model returned to the loss; 0 where none was seen."""
        self.reads: dict[int, nn.Parameter] = {}
        """Parameters that it takes by itself, not through what the model returned, by identity."""
        self.active, self._values = False, list[float]()
        self._ends: set[Any] = set()
        """What made the model's outputs of this step: several passes may come before their backward passes."""
        intercept.listen(self)

    def close(self) -> None:
        """Listen no more."""
        intercept.forget(self)

    def begin(self) -> None:
        """Look at a new step."""
        self.active, self._values = True, []
        self._steps, self._looks = self._steps + 1, 0

    def end(self) -> None:
        """Look no more, and hold no graph."""
        self.active, self._ends = False, set()

    @property
    def value(self) -> float:
        """The sum of the step's losses as backward passes begin from them; NaN where one is not known, or none."""
        return sum(self._values) if self._values else math.nan

    def facts(self) -> dict[str, Any]:
        """Return what was seen of all losses, as fields of a `Layout`."""
        return {
            "loss_coupled_by": self.coupled_by,
            "loss_coupled_sizes": self.sizes,
            "loss_gathered": self.gathered,
            "loss_roundoff": self.unit_roundoff,
        }

    def backward(self, roots: Sequence[Tensor], *, given: bool) -> None:
        """Look at what a backward pass is about to begin from."""
        if self.active and has_numbers():
            self._look(roots, given=given)

    @unseen
    def _look(self, roots: Sequence[Tensor], *, given: bool) -> None:
        returned = list(self._returned())
        ends = {tensor.grad_fn for tensor in returned if tensor.grad_fn is not None}
        self._ends |= ends
        of_all_ranks = {
            ranks.world_size() * len(tensor) for tensor in returned if tensor.ndim and ranks.world_size() > 1
        }
        seen = look(roots, self._ends, of_all_ranks)
        self._look_behind(seen.reached)
        if not self.coupled_by:
            self.coupled_by, self.sizes = seen.coupled_by, seen.sizes
        self.gathered |= seen.gathered
        self.unit_roundoff = max(self.unit_roundoff, seen.unit_roundoff)
        if returned:  # else it is a model's own that makes it
            self.reads |= {id(parameter): parameter for parameter in seen.reads}
        whole = not given and all(loss.numel() == 1 and not is_dtensor(loss) for loss in seen.losses)
        self._values += [float(loss.detach()) if whole else math.nan for loss in seen.losses]

    def _look_behind(self, ends: set[Any]) -> None:
        if not ends or self._steps > _STEPS or self._looks == _LOOKS:
            return
        self._looks += 1
        found = half_format(ends, set(map(id, self._parameters())))
        if found and (self.computes is None or found.unit_roundoff > self.computes.unit_roundoff):
            self.computes = found


_STEPS = 4
"""Traced steps in which a model's own operations are looked at."""

_LOOKS = 4
"""Backward passes of such a step before which they are."""
