"""Number formats: how coarsely each rounds, and in which one a model computes."""

from typing import NamedTuple

import torch
from torch import nn

_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


class NumberFormat(NamedTuple):
    """A name such as `bf16`, and half the relative spacing of its numbers (Higham, 2002, section 2.1)."""

    name: str
    unit_roundoff: float


def number_format(dtype: torch.dtype) -> NumberFormat:
    """Return the format of a dtype; of one that is not listed, such as fp8, what torch says of it."""
    if dtype in _NAMES:
        return NumberFormat(_NAMES[dtype], _ROUNDOFF[dtype])
    return NumberFormat(str(dtype).removeprefix("torch."), torch.finfo(dtype).eps / 2)


def computed_in(model: nn.Module, autocast: torch.dtype | None) -> NumberFormat:
    """Return the format of a model's products: autocast's choice, else that of the coarsest parameter."""
    dtypes = [parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()]
    found = number_format(autocast) if autocast else max(map(number_format, dtypes), key=lambda f: f.unit_roundoff)
    if found.name == "fp32" and torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32:
        return NumberFormat("tf32", 2.0**-11)
    return found
