"""Which tensors there are among arguments and results, and what numbers or rows of them there are to be looked at."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainparity.parity.recording.formats import as_real, where_float64_is
from trainparity.parity.recording.kinds import is_dtensor


def tensors(values: Any) -> Iterable[Tensor]:
    """Return the tensors in arguments or results, in their order."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def numbers_of(tensor: Tensor) -> Tensor:
    """Return all numbers of a tensor of any kind: [L]. Of a meta tensor, and of one whose memory is freed, none.

    A sparse gradient, as that of an embedding, has all its zeros; a nested tensor those of its parts, one after the
    other; complex numbers are two each; a quantised tensor's are what they stand for, those of a format that nothing
    is computed in (fp4, int4) their bytes.
    """
    tensor = tensor.detach()
    if tensor.is_meta or is_freed(tensor):
        return torch.zeros(0)
    if tensor.is_nested:
        return torch.cat([numbers_of(part) for part in tensor.unbind()] or [torch.zeros(0)])
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    dense = as_real(tensor.to_dense() if tensor.layout in _SPARSE or tensor.is_mkldnn else tensor)
    return (dense.view(torch.uint8) if dense.dtype in _BYTES else dense).flatten()


_BYTES = {torch.float4_e2m1fn_x2, torch.bits8}
_BYTES |= {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in range(1, 8)}
"""Formats that torch stores, and doesn't turn into others."""


def shape_of(tensor: Tensor) -> list[int]:
    """Return a tensor's shape; of a nested one, whose rows differ in length, how many numbers it has."""
    return [sum(part.numel() for part in tensor.unbind())] if tensor.is_nested else list(tensor.shape)


def is_freed(tensor: Tensor) -> bool:
    """Tell whether a strided tensor's memory was let go, as FSDP's first version does with what others hold."""
    if tensor.layout is not torch.strided or tensor.is_nested or is_dtensor(tensor) or not tensor.numel():
        return False
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    with suppress(RuntimeError, NotImplementedError):  # what a function's transform wraps has no memory of its own
        return tensor.untyped_storage().nbytes() < (tensor.storage_offset() + last + 1) * tensor.itemsize
    return False


_MOST_DENSE = 1 << 26
"""Numbers up to which a sparse tensor is looked at as a dense one."""


def as_dense(tensor: Tensor) -> Tensor:
    """Return a sparse tensor with all of its numbers, as a graph's features and edges, unless it is very large."""
    if tensor.layout == torch.strided or is_dtensor(tensor) or tensor.is_nested or tensor.numel() > _MOST_DENSE:
        return tensor
    return tensor.detach().to_dense()


def has_rows(tensor: Tensor) -> bool:
    """Tell whether a tensor lies in memory as [B, ...]: a scalar, a sparse, a nested and a meta one do not."""
    return tensor.ndim > 0 and tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_meta


def in_memory(tensor: Tensor) -> bool:
    """Tell whether a tensor has numbers that can be looked at."""
    strided = tensor.layout == torch.strided and not (is_dtensor(tensor) or tensor.is_nested or tensor.is_meta)
    return strided and tensor.numel() > 0


def rows_of(tensor: Tensor) -> Tensor:
    """Return a tensor [..., C] as rows [n, C], one of one dimension as [n, 1]: float64; zeros where it is infinite."""
    exact = where_float64_is(as_real(tensor.detach())).double()
    return torch.nan_to_num(exact, nan=torch.nan, posinf=0.0, neginf=0.0).reshape(
        -1, tensor.shape[-1] if tensor.ndim > 1 else 1
    )
