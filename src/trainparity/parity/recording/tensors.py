"""Which tensors there are among arguments and results, and which of them have rows, or numbers, to be looked at."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainparity.parity.recording.formats import as_real, where_float64_is
from trainparity.parity.recording.kinds import is_dtensor


def tensors(values: Any) -> Iterable[Tensor]:
    """Return the tensors in arguments or results, in their order."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


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
