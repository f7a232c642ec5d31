"""The parameters and buffers of which a trace has columns: those that the model has when recording begins."""

from torch import Tensor, nn

from trainparity.parity.recording.unwrap import plain_name


class Structure:
    """What a plain model held at first; one that holds other parameters later is another model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._parameters = _names(model)
        self._buffers: list[str] | None = None

    def changed(self) -> str:
        """Say which parameters the model has now, and had not, or has no more; empty: it has the same."""
        now = _names(self._model)
        added = [name for name in now if name not in self._parameters]
        lost = [name for name in self._parameters if name not in now]
        return ", ".join(f"{what} {_some(odd)}" for what, odd in (("added", added), ("lost", lost)) if odd)

    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers by name: those that there were when it was first asked, as a first pass may make some.

        One that is gone since is empty.
        """
        held = {plain_name(name): buffer for name, buffer in self._model.named_buffers()}
        if self._buffers is None:
            self._buffers = list(held)
        return {name: held.get(name, Tensor()) for name in self._buffers}


def _names(model: nn.Module) -> list[str]:
    return [plain_name(name) for name, _ in model.named_parameters()]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


_MOST = 3
"""Names that are written."""
