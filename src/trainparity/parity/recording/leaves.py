"""Hooks on the modules that hold no others: what each returns is seen, and moved in a twin."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.hooks import Hook
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.names import GIVEN
from trainparity.parity.recording.perturb import Noise, OtherOrder, sums_over_rows
from trainparity.parity.recording.tensors import has_rows, is_strided


class Leaves:
    """The innermost modules of a model, by name."""

    def __init__(
        self,
        leaves: list[tuple[str, nn.Module]],
        looking: Callable[[], bool],
        see: Callable[[str, Any], None],
        traced: Callable[[], bool],
    ) -> None:
        """Attach; while `looking`, `see` is told what each returns; `traced` tells whether the step is traced."""
        self.noise: Noise | None = None
        """A twin's, which moves what they return."""
        self._looking, self._see, self._traced = looking, see, traced
        self.handles: list[RemovableHandle] = []
        for name, module in leaves:
            if sums_over_rows(module):
                self.handles += OtherOrder(module, self._moves_sums).handles
            self.handles.append(module.register_forward_hook(Hook(partial(self._returned, name, module))))

    def _moves_sums(self) -> bool:
        return self.noise is not None and self._traced()

    def _returned(self, name: str, watched: nn.Module, module: nn.Module, inputs: Any, output: Any) -> Any:
        if not self._looking() or module is not watched:  # a copy has its hooks
            return None
        return self._look(name, module, inputs, output)

    @unseen
    def _look(self, name: str, module: nn.Module, inputs: Any, output: Any) -> Any:
        if _drops(module) and isinstance(inputs[0], Tensor):
            self._see(name + GIVEN, inputs[0].detach())
        self._see(name, output)
        exact = isinstance(output, Tensor) and output.dtype.to_real() in (torch.float32, torch.float64)
        if not self.noise or not isinstance(output, Tensor) or is_dtensor(output) or not has_rows(output):
            return None
        # In coarser formats the moved weights say enough: few of their roundings depend on a sum's order. Of an
        # alias the gradient is seen, as what the model returns, before it is moved as this module's.
        return self.noise(output) if exact else alias(output)


def _drops(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0


def alias(tensor: Tensor) -> Tensor:
    """Return a view of a tensor: the gradient that comes to it is the loss's alone. Not of sparse and nested ones."""
    return tensor.view_as(tensor) if tensor.grad_fn is not None and is_strided(tensor) else tensor
