"""Every operator of one optimizer step, with what it returned and the line that it ran for."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.sketch import Sketcher
from trainparity.parity.recording.tensors import is_strided
from trainparity.records.operators import OperatorCall, OperatorLog

_SIZE = 16
"""Numbers that an operator's result is projected to."""
_PLAIN = (Tensor, torch.nn.Parameter)
"""Not a wrapper: of a sharded tensor's operator those on its parts are seen."""
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[1])
_ATTACH = str(Path(__file__).parent)


class OperatorWindow:
    """Logs the operators of one step."""

    def __init__(self, step: int, path: Path) -> None:
        """Log step `step`, from 0, into the file `path`."""
        self._step, self._path = step, path
        self._mode: _Mode | None = None

    def at(self, step: int) -> None:
        """Note that so many steps have been made: the window opens or closes."""
        if step == self._step and self._mode is None:
            self._mode = _Mode()
            self._mode.__enter__()  # type: ignore[no-untyped-call]
        elif step > self._step and self._mode is not None and not self._path.exists():
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            OperatorLog(step=self._step, calls=self._mode.calls).write(self._path)


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sketch = Sketcher(_SIZE)
        self.calls: list[OperatorCall] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator; see `TorchDispatchMode`."""
        result = func(*args, **(kwargs or {}))
        tensor = next((leaf for leaf in tree_leaves(result) if type(leaf) in _PLAIN and is_inexact(leaf)), None)
        if tensor is None or func.is_view or (place := _place(sys._getframe(1))) is None:
            return result
        numbers = self._sketch(tensor) if is_strided(tensor) else torch.zeros(0)
        self.calls.append(
            OperatorCall(
                operator=str(func.overloadpacket),
                place=place,
                shape=list(tensor.shape),
                sketch=numbers.tolist() if numbers.isfinite().all() else [],
            )
        )
        return result


def _place(frame: FrameType | None) -> str | None:
    """Return the line that an operator runs for; None if it is one of ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS) and not file.startswith(_ATTACH):
            return None
        if not file.startswith((_TORCH, _OURS, "<")):
            line = f"{_shown(file)}:{frame.f_lineno}"
            node = torch._C._current_autograd_node()
            return f"{line}, in {node.name()}" if node is not None else line
        frame = frame.f_back
    return "no line of Python"


def _shown(file: str) -> str:
    """Return a path as short as it is told apart: below the working folder, or the last two names."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(Path(*path.parts[-2:]))
