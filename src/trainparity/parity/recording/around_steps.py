"""Hooks around an optimizer's step: before and after the loop's own hooks on it, which may be younger."""

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
        self.remove()
        self._optimizer = optimizer
        self._handles = [optimizer.register_step_pre_hook(self._begins)]
        self._handles_after = [optimizer.register_step_post_hook(self._after)] if self._after else []

    def call_after(self, after: Callable[..., None]) -> None:
        """Call a post-hook, too."""
        self._after = after
        self.watch(self._optimizer)

    def come_last(self) -> None:
        """Be called before a step after the loop's own hooks, which may clip gradients."""
        for handle in (*self._handles, *(self._optimizer.handles if isinstance(self._optimizer, Joint) else ())):
            come_last(handle)

    @unseen
    def _begins(self, *step: Any) -> Any:
        """Be called after the step after the loop's own hooks, which may average weights.

        Only now: one that is called after a step must not move there, where torch goes through these hooks.
        """
        of_members = self._optimizer.handles_after if isinstance(self._optimizer, Joint) else ()
        for handle in (*self._handles_after, *of_members):
            come_last(handle)
        return self._before(*step)

    def remove(self) -> None:
        """Be called no more."""
        for handle in (*self._handles, *self._handles_after):
            handle.remove()
