"""Hooks around a step, of one optimizer or several: before and after the loop's own on it, which may be younger."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.hooks import come_last
from trainparity.parity.recording.joint import Joint


class AroundSteps:
    """Calls something before each step of an optimizer, and something else after it."""

    def __init__(self, before: Callable[..., Any]) -> None:
        """`before` is a pre-hook of a step."""
        self._before = before
        self._after: Callable[..., None] | None = None
        self._handles: list[RemovableHandle] = []
        self._handles_after: list[RemovableHandle] = []

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Be called for this optimizer's steps, and no other's."""
        self._remove()
        self._optimizer = optimizer
        self._handles = [optimizer.register_step_pre_hook(self._begins)]
        self._handles_after = [optimizer.register_step_post_hook(self._after)] if self._after else []

    def call_after(self, after: Callable[..., None]) -> None:
        """Call a post-hook, too."""
        self._after = after
        self.watch(self._optimizer)

    def come_last(self) -> None:
        """Be called before a step after the loop's own hooks, which may clip gradients."""
        of_members = self._joint.handles if self._joint else ()
        for handle in (*self._handles, *of_members):
            come_last(handle)

    @unseen
    def _begins(self, *step: Any) -> Any:
        """Be called after the step after the loop's own hooks, which may average weights.

        Only now: one that is called after a step must not move there, where torch goes through these hooks.
        """
        of_members = self._joint.handles_after if self._joint else ()
        for handle in (*self._handles_after, *of_members):
            come_last(handle)
        return self._before(*step)

    @property
    def end_of_several(self) -> Callable[[], None] | None:
        """What ends a step that several optimizers make; None: one makes it, and it ends when that returns."""
        return self._joint.end if self._joint else None

    @property
    def begins_late(self) -> bool:
        """Whether only the step's end tells which of several optimizers a wrapper makes it with."""
        return self._joint is not None and self._joint.inside

    def keep_gradients(self, keep: bool) -> None:
        """Have several optimizers keep the gradients of each until their step ends, or no longer."""
        if self._joint:
            self._joint.keep = keep

    def release(self) -> None:
        """Be called no more, and leave several optimizers as they were."""
        self._remove()
        if self._joint:
            self._joint.release()

    @property
    def _joint(self) -> Joint | None:
        return self._optimizer if isinstance(self._optimizer, Joint) else None

    def _remove(self) -> None:
        for handle in (*self._handles, *self._handles_after):
            handle.remove()
