"""A whole script in float64: rounding gets a billion times smaller there, and a fault stays as large as it was.

Every call of torch passes a mode that turns coarser floating-point formats into float64: in what is asked for, in
tensors that come from elsewhere, and in results. Autocast and loss scaling do nothing. Where more than the rounding of
single precision goes with that, as a cast to bf16 of the script's own, it is told: float64 does not tell both apart.
(https://docs.pytorch.org/docs/stable/notes/extending.html#extending-all-torch-api-with-modes)
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

_WIDER = {
    **dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64),
    **dict.fromkeys((torch.complex64, torch.complex32), torch.complex128),
}
"""What takes the place of coarser formats."""
_HALF = (torch.float16, torch.bfloat16, torch.complex32)
"""What is coarser than single precision."""
_CASTS = {
    **dict.fromkeys(("float", "half", "bfloat16"), torch.float64),
    **dict.fromkeys(("cfloat", "chalf"), torch.complex128),
}
"""Methods of tensors that are named after a format, and the one that takes its place."""
_HALVING = ("half", "bfloat16", "chalf")


Tell = Callable[[], None]
"""Called where float64 takes more away than the rounding of single precision."""


def _tell_nobody() -> None: ...


class Float64(TorchFunctionMode):
    """While this mode is on, torch computes in float64 where it would in a coarser format."""

    def __init__(self, tell: Tell = _tell_nobody) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch; see `TorchFunctionMode`."""
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):  # an attribute, such as `grad`, stays the tensor that it is
            return func(*args, **(kwargs or {}))
        if name in _CASTS and args and isinstance(args[0], Tensor):
            if name in _HALVING:
                self._tell()
            func, args = Tensor.to, (args[0], _CASTS[name])
        first = 1 if name.endswith("_") or name == "__setitem__" else 0  # which is changed in place
        args = (*args[:first], *(tree_map(self._widened, value) for value in args[first:]))
        result = func(
            *args,
            **{key: value if key == "out" else tree_map(self._widened, value) for key, value in (kwargs or {}).items()},
        )
        return result if first else tree_map(self._widened, result)

    def _widened(self, value: object) -> object:
        """Return a format or a tensor in float64 in place of a coarser one; anything else as it is."""
        if isinstance(value, torch.dtype):
            if value in _HALF:
                self._tell()
            return _WIDER.get(value, value)
        if type(value) is Tensor and value.dtype in _WIDER:
            with torch._C.DisableTorchFunction():
                if value.dtype in _HALF:
                    self._tell()
                return value.to(_WIDER[value.dtype])
        return value


def compute_in_float64(tell: Tell = _tell_nobody) -> None:
    """Turn the mode on for the rest of this process; and autocast and loss scaling, which have no use then, off.

    What is compiled may run otherwise under the mode, so that is told as well.
    """
    for switched in (torch.amp.autocast_mode.autocast, torch.amp.GradScaler):
        switched.__init__ = _given(switched.__init__, tell, enabled=False)  # type: ignore[method-assign]
    torch.compile = _told(torch.compile, tell)
    torch.nn.Module.compile = _told(torch.nn.Module.compile, tell)  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    Float64(tell).__enter__()  # type: ignore[no-untyped-call]


def shard_in_float64(fsdp: Any, tell: Tell = _tell_nobody) -> None:
    """Let the policies of FSDP and FSDP2 choose no format. `fsdp` is `torch.distributed.fsdp`."""
    for policy in (fsdp.MixedPrecision, fsdp.MixedPrecisionPolicy):
        chosen = [name for name in signature(policy.__init__).parameters if "_dtype" in name]
        policy.__init__ = _given(policy.__init__, tell, **dict.fromkeys(chosen))


def _told(original: Callable[..., Any], tell: Tell) -> Callable[..., Any]:
    """Return a function that tells of each call."""

    @wraps(original)
    def called(*args: Any, **keywords: Any) -> Any:
        tell()
        return original(*args, **keywords)

    return called


def _given(original: Callable[..., None], tell: Tell, **values: Any) -> Callable[..., None]:
    """Return a constructor that takes some values whatever it is given for them, and tells where that is another."""

    @wraps(original)
    def given(*args: Any, **keywords: Any) -> None:
        bound = signature(original).bind(*args, **keywords)
        bound.apply_defaults()
        if any(bound.arguments[name] != value for name, value in values.items()):
            tell()
        bound.arguments.update(values)
        original(*bound.args, **bound.kwargs)

    return given
