"""TanhExp, x tanh(e^x), in two forms that save only x for the backward pass.

Source: Liu and Di, "TanhExp: A smooth activation function with high convergence speed for lightweight neural
networks" (arXiv 2003.09855). For x >= 20 it equals x in every number format, and its derivative equals 1. So x is
clamped to 20 in e^x, which changes no bit and keeps e^x finite. Half precision is computed in float32, as PyTorch
does in its own activations.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

_LINEAR_FROM = 20.0


def tanhexp(x: Tensor) -> Tensor:
    """Article E's form: an `autograd.Function` with the closed form of the derivative."""
    y: Tensor = _TanhExp.apply(x)
    return y


def tanhexp_recomputed(x: Tensor) -> Tensor:
    """Activation checkpointing of the plain formula: torch.compile sees its derivative too and can fuse it."""
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
        clamped = wide.clamp(max=_LINEAR_FROM)  # in the product too: above 1e30 it would be infinite, times 0
        exponential = clamped.exp()
        tanh = exponential.tanh()
        return _as(gradient * (tanh - clamped * exponential * (tanh.square() - 1)), x.dtype)


def _formula(x: Tensor) -> Tensor:
    wide = _wide(x)
    return _as(wide * wide.clamp(max=_LINEAR_FROM).exp().tanh(), x.dtype)


def _wide(x: Tensor) -> Tensor:
    return _as(x, torch.promote_types(x.dtype, torch.float32))


def _as(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor to another type; return it without calling `to` if it has that type.

    In that case `to` returns its argument. Dynamo of torch 2.11 returns all intermediate tensors of a Function's
    forward as outputs, and then one tensor is two outputs. Autograd gives its gradient to the second one, and the
    backward computes with zeros, without an error.
    """
    return x if x.dtype == dtype else x.to(dtype)
