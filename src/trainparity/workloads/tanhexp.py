"""TanhExp, x tanh(e^x), in two forms that keep nothing but x for backward.

Source: Liu and Di, "TanhExp: A smooth activation function with high convergence speed for lightweight neural
networks" (arXiv 2003.09855). From 20 on it is x, and its derivative 1, in every number format: clamping the
exponent there changes no bit and keeps e^x finite. Half precision is computed in float32, as torch's own
activations are.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_LINEAR_FROM = 20.0


def tanhexp(x: Tensor) -> Tensor:
    """Article E's form: a function of its own for autograd, with the closed form of the derivative."""
    y: Tensor = _TanhExp.apply(x)
    return y


def tanhexp_recomputed(x: Tensor) -> Tensor:
    """Activation checkpointing of the plain formula: torch.compile sees, and may fuse, its derivative as well."""
    y: Tensor = checkpoint(_formula, x, use_reentrant=False, preserve_rng_state=False)  # it draws no random numbers
    return y


class _TanhExp(torch.autograd.Function):
    """The derivative is tanh(e^x) - x e^x (tanh(e^x)^2 - 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _formula(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        wide = _wide(x)
        exponential = wide.clamp(max=_LINEAR_FROM).exp()
        tanh = exponential.tanh()
        return _as(gradient * (tanh - wide * exponential * (tanh.square() - 1)), x.dtype)


def _formula(x: Tensor) -> Tensor:
    wide = _wide(x)
    return _as(wide * wide.clamp(max=_LINEAR_FROM).exp().tanh(), x.dtype)


def _wide(x: Tensor) -> Tensor:
    return _as(x, torch.promote_types(x.dtype, torch.float32))


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor that has another type; a conversion that does nothing must not be written here.

    `Tensor.to` returns the same tensor then. Dynamo of torch 2.11 makes every intermediate tensor of a Function's
    forward an output of it. So one tensor is the output twice, autograd adds its gradient to the second of the two,
    and the backward gets zeros for the first, without an error.
    """
    return x if x.dtype == dtype else x.to(dtype)
