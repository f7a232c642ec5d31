"""Which format a step's forward passes cast what they multiply to: as autocast chooses, or modules by themselves."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.formats import device_of, is_inexact, number_format


class Autocast:
    """Looked at where a forward pass begins, and inside of it: `forward` itself may switch it on."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._device = model, device_of(model).type
        self.computes: torch.dtype | None = None
        """What the last step's forward passes computed products in, if autocast or modules chose it."""
        self._now: torch.dtype | None = None
        """The same of the passes since then, which may be those of an evaluation."""
        self.on_seen: Callable[[torch.dtype], None] | None = None
        """Called once, where a forward pass is first seen to be cast, with what it computes in."""

    def begin(self) -> None:
        """Look at a step's first forward pass."""
        self._now, self._device = None, device_of(self._model).type
        self._look()

    def see(self, module: nn.Module) -> None:
        """Look where a module inside of a pass is called, if none was seen before: one with something to train."""
        if self._now is None and torch.is_autocast_enabled(self._device) and _is_trained(module):
            self._look()

    def returned(self, module: nn.Module, output: Any) -> None:
        """Look at what a module inside of a pass returns: it may cast its weights to the format that it is given.

        What no gradient comes back through, as numbers for a log or a frozen teacher's, is none of the training.
        """
        if self._now is None and isinstance(output, Tensor) and output.dtype in _HALF and output.requires_grad:
            own = [p for p in module._parameters.values() if p is not None and p.requires_grad and is_inexact(p)]
            if own and all(number_format(p.dtype).unit_roundoff < _HALF[output.dtype] for p in own):
                self._show(output.dtype)

    @unseen
    def _look(self) -> None:
        if torch.is_autocast_enabled(self._device):
            self._show(torch.get_autocast_dtype(self._device))

    @unseen
    def _show(self, dtype: torch.dtype) -> None:
        self._now = dtype
        if self.on_seen:
            self.on_seen(dtype)
            self.on_seen = None

    def end(self) -> None:
        """Keep what the step's passes showed."""
        self.computes = self._now


def _is_trained(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


_HALF = {dtype: number_format(dtype).unit_roundoff for dtype in (torch.float16, torch.bfloat16)}
