"""Number formats: how coarsely each rounds, and in which one a model computes."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

UNIT_ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Half the relative spacing of the numbers that products are computed in (Higham, 2002, section 2.1)."""

_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class NumberFormat(NamedTuple):
    """A name such as `bf16`, and half the relative spacing of its numbers."""

    name: str
    unit_roundoff: float


def number_format(dtype: torch.dtype) -> NumberFormat:
    """Return the format of a dtype; of one that is not listed, such as fp8, what torch says of it."""
    if dtype in _NAMES:
        return NumberFormat(_NAMES[dtype], UNIT_ROUNDOFF[_NAMES[dtype]])
    return NumberFormat(str(dtype).removeprefix("torch."), torch.finfo(dtype).eps / 2)


def computed_in(model: nn.Module, autocast: torch.dtype | None) -> NumberFormat:
    """Return the format of a model's products: autocast's choice, else that of the coarsest parameter."""
    dtypes = [parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()]
    found = number_format(autocast) if autocast else max(map(number_format, dtypes), key=lambda f: f.unit_roundoff)
    if found.name == "fp32" and torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32:
        return NumberFormat("tf32", UNIT_ROUNDOFF["tf32"])
    return found


def where_float64_is(tensor: Tensor) -> Tensor:
    """Return a tensor on a device that has float64: its own, or for one on mps the CPU."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor
