"""Which tensors there are among arguments and results, and what numbers or rows of them there are to be looked at."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from trainparity.parity.recording.formats import as_real, where_float64_is
from trainparity.parity.recording.kinds import is_awaited, is_dtensor, is_masked


def tensors(values: Any) -> Iterable[Tensor]:
    """Return the tensors in arguments or results, in their order."""
    if isinstance(values, Tensor):  # as most are, and looked for at each call of a module
        return (values,)
    if type(values) is tuple and all(isinstance(value, Tensor) for value in values):
        return values
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def numbers_of(tensor: Tensor) -> Tensor:
    """Return all numbers of a tensor of any kind: [L]. Of a meta tensor, and of one whose memory is freed, none.

    A sparse gradient, as that of an embedding, has all its zeros, and a large matrix, as a graph's edges, its values,
    and these times their places; a nested tensor has those of its parts, one after the other, and so has one that
    wraps others, as a masked one; complex numbers are two each; a quantised tensor's are what they stand for, those of
    a format that nothing is computed in (fp4, int4) their bytes.
    """
    tensor = tensor.detach()
    if tensor.is_meta or is_freed(tensor):
        return torch.zeros(0)
    if (parts := _parts(tensor)) is not None:
        return torch.cat([numbers_of(part) for part in parts] or [torch.zeros(0)])
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    dense = as_real(tensor.to_dense() if tensor.layout in _SPARSE or tensor.is_mkldnn else tensor)
    return (dense.view(torch.uint8) if dense.dtype in _BYTES else dense).flatten()


def _parts(tensor: Tensor) -> list[Tensor] | None:
    """Return the tensors that one is made of, none of one that nobody can look into; None of a plain one."""
    if tensor.is_nested:
        return [*tensor.unbind()]
    if is_wrapper(tensor):
        if is_traceable_wrapper_subclass(tensor):
            return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        masked: Any = tensor
        return [masked.get_data(), masked.get_mask()] if is_masked(tensor) else []
    if tensor.layout in _SPARSE and tensor.numel() > _MOST_DENSE:
        entries = tensor.to_sparse(layout=torch.sparse_coo).coalesce()
        if not entries.dense_dim():  # else rows of a gradient, as of an embedding: it is as large as the weights
            at = entries.indices() / torch.tensor(entries.shape, device=entries.device)[:, None]
            return [entries.values(), *(entries.values() * places for places in at)]
    return None


def is_wrapper(tensor: Tensor) -> bool:
    """Tell whether a tensor of a class of its own handles what is computed with it, as a masked one does.

    A shard is none, of which more is known, nor what a collective returns before it is waited for.
    """
    handles = type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__
    return handles and not (is_dtensor(tensor) or tensor.is_nested or is_awaited(tensor))


_BYTES = {torch.float4_e2m1fn_x2, torch.bits8, torch.bits16, torch.bits1x8, torch.bits2x4, torch.bits4x2}
_BYTES |= {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in range(1, 8)}
"""Formats that torch stores, and doesn't turn into others."""


def shape_of(tensor: Tensor) -> list[int]:
    """Return a tensor's shape; of a nested one, whose rows differ in length, how many numbers it has."""
    return [sum(part.numel() for part in tensor.unbind())] if tensor.is_nested else list(tensor.shape)


def is_strided(tensor: Tensor) -> bool:
    """Tell whether the numbers of a tensor lie in memory by strides: those of sparse and of nested ones do not."""
    return tensor.layout == torch.strided and not tensor.is_nested


def is_freed(tensor: Tensor) -> bool:
    """Tell whether a strided tensor's memory was let go, as FSDP's first version does with what others hold."""
    if not is_strided(tensor) or is_dtensor(tensor) or not tensor.numel():
        return False
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    with suppress(RuntimeError, NotImplementedError):  # what a function's transform wraps has no memory of its own
        return tensor.untyped_storage().nbytes() < (tensor.storage_offset() + last + 1) * tensor.itemsize
    return False


_MOST_DENSE = 1 << 26
"""Numbers up to which a sparse tensor is looked at as a dense one."""


def as_dense(tensor: Tensor) -> Tensor:
    """Return a sparse tensor with all of its numbers, as a graph's features and edges, unless it is very large.

    And a quantised one with what its numbers stand for.
    """
    if tensor.is_quantized:
        return tensor.detach().dequantize()
    if tensor.layout == torch.strided or is_dtensor(tensor) or tensor.is_nested or tensor.numel() > _MOST_DENSE:
        return tensor
    return tensor.detach().to_dense()


def has_rows(tensor: Tensor) -> bool:
    """Tell whether a tensor lies in memory as [B, ...]: a scalar, a sparse, a nested, a quantised, a meta one do not.

    Nor does one that wraps others, nor one in a format that nothing is computed in.
    """
    return tensor.ndim > 0 and _is_plain(tensor)


def _is_plain(tensor: Tensor) -> bool:
    """Tell whether a tensor has numbers to compute with, each in its place."""
    there = is_strided(tensor) and not tensor.is_meta
    return there and not tensor.is_quantized and tensor.dtype not in _BYTES and not is_wrapper(tensor)


def in_memory(tensor: Tensor) -> bool:
    """Tell whether a tensor has numbers that can be looked at."""
    return _is_plain(tensor) and not is_dtensor(tensor) and tensor.numel() > 0


def rows_of(tensor: Tensor) -> Tensor:
    """Return a tensor [..., C] as rows [n, C], one of one dimension as [n, 1]: float64; zeros where it is infinite."""
    exact = where_float64_is(as_real(tensor.detach())).double()
    return torch.nan_to_num(exact, nan=torch.nan, posinf=0.0, neginf=0.0).reshape(
        -1, tensor.shape[-1] if tensor.ndim > 1 else 1
    )
