"""Which format autocast has a step's forward passes compute products in."""

from collections.abc import Callable

import torch
from torch import nn

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.formats import device_of


class Autocast:
    """Looked at where a forward pass begins, and inside of it: `forward` itself may switch it on."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._device = model, device_of(model).type
        self.computes: torch.dtype | None = None
        """What the last step's forward passes computed products in, if autocast chose it."""
        self._now: torch.dtype | None = None
        """The same of the passes since then, which may be those of an evaluation."""
        self.on_seen: Callable[[torch.dtype], None] | None = None
        """Called once, where a forward pass is first seen under autocast, with what that computes in."""

    def begin(self) -> None:
        """Look at a step's first forward pass."""
        self._now, self._device = None, device_of(self._model).type
        self._look()

    def see(self) -> None:
        """Look where a module inside of a pass is called, if none was seen before."""
        if self._now is None:
            self._look()

    @unseen
    def _look(self) -> None:
        if torch.is_autocast_enabled(self._device):
            self._now = torch.get_autocast_dtype(self._device)
            if self.on_seen:
                self.on_seen(self._now)
                self.on_seen = None

    def end(self) -> None:
        """Keep what the step's passes showed."""
        self.computes = self._now
