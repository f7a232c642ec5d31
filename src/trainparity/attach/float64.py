"""A whole script in float64: rounding gets a billion times smaller there, and a fault stays as large as it was.

Every call of torch passes a mode that turns coarser floating-point formats into float64: in what is asked for, in
tensors that come from elsewhere, and in results. Autocast and loss scaling do nothing. Where more than the rounding of
single precision goes with that, as a cast to bf16 of the script's own, it is told: float64 does not tell both apart.
(https://docs.pytorch.org/docs/stable/notes/extending.html#extending-all-torch-api-with-modes)
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from mmap import mmap
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from typing_extensions import TypeIs

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
        name, given = getattr(func, "__name__", ""), kwargs or {}
        if name in ("__get__", "__set__"):  # an attribute, such as `grad`, stays the tensor that it is
            return func(*args, **given)
        if name in _CASTS and args and isinstance(args[0], Tensor):
            if name in _HALVING:
                self._tell()
            func, args = Tensor.to, (args[0], _CASTS[name])
        if _is_coarse(given.get("out")):  # as what a loader's worker puts a batch together in
            return func(*args, **given)
        if _takes_bytes(name, args, given):
            given = {"dtype": torch.float32, **given} if name == "from_file" else given
            return tree_map(self.widened, func(*args, **given))
        first = 1 if name.endswith("_") or name == "__setitem__" else 0  # which is changed in place
        args = (*args[:first], *(tree_map(self.widened, value) for value in args[first:]))
        result = func(
            *args,
            **{key: value if key == "out" else tree_map(self.widened, value) for key, value in given.items()},
        )
        return result if first else tree_map(self.widened, result)

    def widened(self, value: object) -> object:
        """Return a format or a tensor in float64 in place of a coarser one; anything else as it is."""
        if isinstance(value, torch.dtype):
            if value in _HALF:
                self._tell()
            return _WIDER.get(value, value)
        if _is_coarse(value):
            with torch._C.DisableTorchFunction():
                if value.dtype in _HALF:
                    self._tell()
                return value.to(_WIDER[value.dtype])
        return value


def _is_coarse(value: object) -> "TypeIs[Tensor]":
    """Tell whether something is a plain tensor in a format that is widened."""
    return type(value) is Tensor and value.dtype in _WIDER


def _takes_bytes(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Tell whether a call takes bytes for numbers of the format that it names: of a wider one these are others."""
    if name == "view":
        of_a_format = any(isinstance(value, torch.dtype) for value in (*args, *keywords.values()))
        return of_a_format and not (args[0].is_floating_point() or args[0].is_complex())
    if name == "new":  # as a loader's worker makes what it puts a batch together in
        return isinstance(args[-1], torch.TypedStorage)
    return name == "from_file" or (name == "asarray" and isinstance(args[0], _BYTES))


_BYTES = (bytes, bytearray, memoryview, mmap, array)


class _Rebuilt:
    """What `torch.load`, `pickle`, a loader's workers and NumPy make tensors by, of bytes as they were written.

    Widened at once: what a loop writes in place goes into a tensor, and not into a wider copy of a view of it.
    """

    def __init__(self, widened: Callable[[object], object]) -> None:
        self._widened, self._filled = widened, True

    def patch(self) -> None:
        """Let tensors be read as they were written, and widened then."""
        for name in ("load", "from_numpy", "frombuffer"):
            setattr(torch, name, self._as_written(getattr(torch, name)))
        torch.serialization._legacy_load = self._later(torch.serialization._legacy_load)
        for name in ("_rebuild_tensor", "_rebuild_tensor_v3"):
            setattr(torch._utils, name, self._as_written(getattr(torch._utils, name)))

    def _as_written(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def called(*args: Any, **keywords: Any) -> Any:
            with torch._C.DisableTorchFunction():
                read = original(*args, **keywords)
                return self._widened(read) if self._filled else read

        return called

    def _later(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that fills tensors after it has made them, as of files of before torch 1.6."""

        @wraps(original)
        def called(*args: Any, **keywords: Any) -> Any:
            self._filled = False
            try:
                return tree_map(self._filled_later, original(*args, **keywords))
            finally:
                self._filled = True

        return called

    def _filled_later(self, read: object) -> object:
        return read.double() if isinstance(read, torch.nn.Module) else self._widened(read)


def compute_in_float64(tell: Tell = _tell_nobody) -> None:
    """Turn the mode on for the rest of this process; and autocast and loss scaling, which have no use then, off.

    What is compiled may run otherwise under the mode, so that is told as well.
    """
    for switched in (torch.amp.autocast_mode.autocast, torch.amp.GradScaler):
        switched.__init__ = _given(switched.__init__, tell, enabled=False)  # type: ignore[method-assign]
    mode = Float64(tell)
    _Rebuilt(mode.widened).patch()
    torch.compile = _told(torch.compile, tell)
    torch.nn.Module.compile = _told(torch.nn.Module.compile, tell)  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    mode.__enter__()  # type: ignore[no-untyped-call]


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
