"""What one step does to its gradients between backward and the update: a loss scale, and clipping."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from trainparity.parity.recording import intercept
from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.joint import Joint, belongs
from trainparity.parity.recording.shards import full
from trainparity.parity.recording.unwrap import plain_optimizers

NO_CLIP = -1.0
"""The limit and the norm of a step without clipping."""


class _Clip(NamedTuple):
    """One call that clips."""

    max_norm: float
    total_norm: float
    """Norm before it; NaN where each value is clipped by itself."""
    backwards: int
    """Backward passes before it."""


_NONE = _Clip(NO_CLIP, NO_CLIP, 0)


class ClippingHooks(intercept.Listener):
    """Between `begin` and `read` it notes the calls that clip the gradients of a step, and the loss scaler's."""

    def __init__(self, backwards: Callable[[], int], concerned: Callable[[Sequence[Tensor]], bool]) -> None:
        """Listen to what is done to one optimizer's gradients.

        Args:
            backwards: Counts the step's backward passes so far.
            concerned: Tells whether the optimizer updates any of some tensors: a loop may clip those of another one.
        """
        self._backwards, self._concerned = backwards, concerned
        self.before: Callable[[Sequence[Tensor]], None] | None = None
        """Looks at the gradients before those of some tensors are clipped."""
        self.after: Callable[[], None] | None = None
        """Looks at them after that."""
        self.on_skipped: Callable[[], None] | None = None
        """Called when a loss scaler has skipped an update for an overflow."""
        self.optimizer: torch.optim.Optimizer | None = None
        """The plain optimizer of which a scaler is asked."""
        self.updated = False
        """Whether that optimizer has made its update."""
        self.begin()
        self.active = False
        intercept.listen(self)

    def close(self) -> None:
        """Listen no more."""
        intercept.forget(self)

    def begin(self) -> None:
        """Look at a new step."""
        self.active = True
        self.scale = 0.0
        """The loss scale; 0: the loss is not scaled."""
        self._clips: list[_Clip] = []
        self._clipped_scaled = False
        self._unscaled = set[int]()

    @unseen
    def clipping(self, clipped: Sequence[Tensor], max_norm: float, total_norm: Tensor) -> None:
        """Look at the gradients before they are clipped; a limit that is infinite asks for their norm alone."""
        if not self.active or math.isinf(max_norm) or not self._concerned(clipped):
            return
        self._clipped_scaled |= self._scaled(lambda member: _holds_any(member, clipped))
        self._clips.append(_Clip(max_norm, float(full(total_norm)), self._backwards()))
        if self.before:
            self.before(clipped)

    @unseen
    def clipped(self, clipped: Sequence[Tensor]) -> None:
        """Look at the gradients after they were clipped."""
        if self.active and self.after and self._concerned(clipped):
            self.after()

    def scaling(self, scaler: torch.amp.GradScaler) -> None:
        """Note the loss scale."""
        if self.active:
            self.scale = float(scaler.get_scale())

    def unscaling(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that the loss scale is taken away."""
        if self.active and belongs(optimizer, self.optimizer):
            self._unscaled |= set(map(id, plain_optimizers(optimizer)))

    def scaler_stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that the loss scale will not be in the update."""
        self.unscaling(optimizer)

    def scaler_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Tell the loop's recorder of a step that the scaler has skipped for an overflow."""
        if not belongs(optimizer, self.optimizer):
            return
        if isinstance(self.optimizer, Joint):
            self.updated = not self.optimizer.skips(plain_optimizers(optimizer))
        if self.on_skipped and not self.updated:
            self.on_skipped()
        self.updated = False

    def _scaled(self, looked_at: Callable[[torch.optim.Optimizer], bool]) -> bool:
        """Tell whether gradients carry the loss scale now: of several optimizers those looked at."""
        if not isinstance(self.optimizer, Joint):
            return self.scale > 0 and not self._unscaled
        carrying = (member for member in self.optimizer.members if id(member) not in self._unscaled)
        return self.scale > 0 and any(map(looked_at, carrying))

    def _last(self) -> _Clip | None:
        """Return the calls after the last backward pass as one: the gradient that they see first, and what cuts it."""
        last = [clip for clip in self._clips if clip.backwards == self._clips[-1].backwards]
        if not last:
            return None
        by_value = any(math.isnan(clip.total_norm) for clip in last)
        total_norm = math.nan if by_value else last[0].total_norm
        return _Clip(min(clip.max_norm for clip in last), total_norm, last[-1].backwards)

    def norm(self) -> float:
        """Return the norm of this rank's gradients before they were clipped."""
        return (self._last() or _NONE).total_norm

    def read(self) -> dict[str, Tensor]:
        """Return the step's arrays of a trace, after the update."""
        cuts = [clip for clip in self._clips if not clip.total_norm <= clip.max_norm]
        first, last = (cuts or [_NONE])[0], self._last() or _NONE
        return {
            "clip/calls": torch.tensor(len(self._clips)),
            "clip/max_norm": torch.tensor(last.max_norm, dtype=torch.float64),
            "clip/cuts": torch.tensor(len(cuts)),
            "clip/backwards": torch.tensor(first.backwards),
            "scale/value": torch.tensor(self.scale, dtype=torch.float64),
            "scale/clipped": torch.tensor(self._clipped_scaled),
            "scale/left": torch.tensor(self._scaled(lambda member: member in cast(Joint, self.optimizer).stepped)),
        }


def _holds_any(optimizer: torch.optim.Optimizer, tensors: Sequence[Tensor]) -> bool:
    """Tell whether an optimizer updates one of some tensors."""
    return not {id(p) for group in optimizer.param_groups for p in group["params"]}.isdisjoint(map(id, tensors))
