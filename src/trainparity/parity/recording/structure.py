"""The parameters and buffers of which a trace has columns: those that the model has when recording begins."""

from torch import Tensor, nn

from trainparity.parity.recording.unwrap import plain_name


class Structure:
    """What a plain model held at first; one that holds other parameters later is another model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._names = dict.fromkeys(_names(model))
        self._look()
        self._buffers: list[str] | None = None

    def _look(self) -> None:
        self._parts = _parts(self._model)
        """What every module holds: while it does, names and parameters are the same."""
        self._parameters = list(self._model.parameters())

    def parameters(self) -> list[Tensor]:
        """Return the parameters that the model has now, in the order of its own list, which takes longer to make."""
        return [*self._model.parameters()] if self.changed() else [*self._parameters]

    def changed(self) -> str:
        """Say which parameters the model has now, and had not, or has no more; empty: it has the same."""
        if all(map(_is_as_before, self._parts)):
            return ""
        now = dict.fromkeys(_names(self._model))
        if now == self._names:
            self._look()
        added = [name for name in now if name not in self._names]
        lost = [name for name in self._names if name not in now]
        return ", ".join(f"{what} {_some(odd)}" for what, odd in (("added", added), ("lost", lost)) if odd)

    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers by name: those that there were when it was first asked, as a first pass may make some.

        One that is gone since is empty.
        """
        held = {plain_name(name): buffer for name, buffer in self._model.named_buffers()}
        if self._buffers is None:
            self._buffers = list(held)
        return {name: held.get(name, Tensor()) for name in self._buffers}


_Part = tuple[nn.Module, dict[str, nn.Module | None], dict[str, int]]
"""A module, the modules in it, and its parameters by their identities: of one that is shared the first name counts."""


def _parts(model: nn.Module) -> list[_Part]:
    return [(module, dict(module._modules), _held(module)) for module in model.modules()]


def _is_as_before(part: _Part) -> bool:
    module, inside, held = part
    return module._modules == inside and _held(module) == held


def _held(module: nn.Module) -> dict[str, int]:
    return {name: id(parameter) for name, parameter in module._parameters.items() if parameter is not None}


def _names(model: nn.Module) -> list[str]:
    return [plain_name(name) for name, _ in model.named_parameters()]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


_MOST = 3
"""Names that are written."""
