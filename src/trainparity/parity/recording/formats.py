"""Number formats: how coarsely each rounds, and in which one a model computes."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

UNIT_ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Half the relative spacing of the numbers that products are computed in (Higham, 2002, section 2.1)."""


def rounds_more_than_fp32(precision: str) -> bool:
    """Tell whether a format, by its name, is coarser than fp32 in what it multiplies; one that has no name here is."""
    return UNIT_ROUNDOFF.get(precision, 1.0) > UNIT_ROUNDOFF["fp32"]


_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class NumberFormat(NamedTuple):
    """A name such as `bf16`, and half the relative spacing of its numbers."""

    name: str
    unit_roundoff: float


def number_format(dtype: torch.dtype) -> NumberFormat:
    """Return the format of a dtype: of a complex one that of its parts, of one such as fp8 what torch says of it."""
    dtype = dtype.to_real()
    if dtype in _NAMES:
        return NumberFormat(_NAMES[dtype], UNIT_ROUNDOFF[_NAMES[dtype]])
    return NumberFormat(str(dtype).removeprefix("torch."), torch.finfo(dtype).eps / 2)


def name_of(unit_roundoff: float) -> str:
    """Return the name of the format that rounds so, of those that weights are stored in."""
    return next((name for name in _NAMES.values() if UNIT_ROUNDOFF[name] == unit_roundoff), "-")


def stored_in(model: nn.Module) -> NumberFormat:
    """Return the format that updates round to: that of the coarsest parameter that is trained, if any is."""
    return _coarsest([p.dtype for p in model.parameters() if p.requires_grad] or _dtypes(model))


def _coarsest(dtypes: list[torch.dtype]) -> NumberFormat:
    return max(map(number_format, dtypes), key=lambda found: found.unit_roundoff)


def _dtypes(model: nn.Module) -> list[torch.dtype]:
    """Return the formats of a model's parameters, torch's default where they tell none.

    A frozen parameter of integers or in fp8, such as a quantised weight, is stored so; products take it in another one.
    """
    found = [p.dtype for p in model.parameters() if is_inexact(p) and (p.requires_grad or not is_packed(p))]
    return found or [torch.get_default_dtype()]


def is_inexact(tensor: Tensor) -> bool:
    """Tell whether a tensor's numbers are rounded, and can have gradients: real or complex ones, no integers."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_packed(tensor: Tensor) -> bool:
    """Tell whether a tensor has fewer than 16 bits for each number, as fp8."""
    return tensor.dtype.to_real().itemsize < 2


def sharded_in(model: nn.Module) -> list[torch.dtype]:
    """Return the formats that FSDP2's `MixedPrecisionPolicy` computes in, where a module has one."""
    return _of_policies(model, "param_dtype")


def _of_policies(model: nn.Module, field: str) -> list[torch.dtype]:
    found = []
    for module in model.modules():
        state = getattr(module, "_get_fsdp_state", None)
        policy = getattr(state(), "_mp_policy", None) if state else None
        found.append(getattr(policy, field, None))
    return [dtype for dtype in found if dtype is not None]


def reduced_in(model: nn.Module) -> NumberFormat | None:
    """Return the format gradients are sent in, by DDP's communication hook or FSDP2's policy; None without them."""
    if found := accumulated_in(model):
        return found
    wrapper: Any = model
    seen = set[int]()  # a model may be its own `module`, so that a loop need not ask whether it is wrapped
    while isinstance(wrapper, nn.Module) and id(wrapper) not in seen:
        seen.add(id(wrapper))
        for hook, *_ in getattr(wrapper, "_comm_hooks", ()):
            for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
                if getattr(hook, "__name__", "").startswith(name):
                    return number_format(dtype)
        # A compiled module refuses to be asked for its truth where the original has no length.
        inner = getattr(wrapper, "module", None)
        wrapper = getattr(wrapper, "_orig_mod", None) if inner is None else inner
    return None


def accumulated_in(model: nn.Module) -> NumberFormat | None:
    """Return the format that FSDP2 adds up gradients of micro-batches and ranks in; None without a policy for it."""
    dtypes = _of_policies(model, "reduce_dtype")
    return _coarsest(dtypes) if dtypes else None


def computed_in(model: nn.Module, autocast: torch.dtype | None) -> NumberFormat:
    """Return the format of a model's products: autocast's or FSDP2's choice, else that of the coarsest parameter."""
    found = number_format(autocast) if autocast else _coarsest(sharded_in(model) or _dtypes(model))
    if found.name == "fp32" and torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32:
        return NumberFormat("tf32", UNIT_ROUNDOFF["tf32"])
    return found


def device_of(model: nn.Module) -> torch.device:
    """Return where a model computes: the device of the first parameter that has numbers, else the CPU."""
    return next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))


def where_float64_is(tensor: Tensor) -> Tensor:
    """Return a tensor on a device that has float64: its own, or for one on mps the CPU."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def as_real(tensor: Tensor) -> Tensor:
    """Return a complex tensor's real and imaginary parts as [..., 2]; another tensor as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def as_complex(parts: Tensor) -> Tensor:
    """Return real and imaginary parts [..., 2] as complex numbers [...]."""
    return torch.complex(parts[..., 0], parts[..., 1])  # `view_as_complex` refuses some strides
