"""Whole tensors of those that are spread over ranks. Everything here is a collective: call it on every rank."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.whole_tensors import whole

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_Some = TypeVar("_Some", Tensor, Tensor | None)

_MESSAGE = 1 << 24
"""Bytes of whole tensors up to which their shards travel together."""


def full(tensor: Tensor) -> Tensor:
    """Return the whole of a sharded tensor, or the tensor itself."""
    return whole(tensor) if is_dtensor(tensor) else tensor


def full_each(tensors: Iterable[_Some]) -> Iterator[_Some]:
    """Yield the whole of each tensor, in their order, and None for None. Take all of them: the last ones are sent late.

    Shards as FSDP2 makes them travel together: a message for each takes as long as all, and a model has hundreds.
    """
    for where, found in groupby(tensors, _where):
        if where is None:
            yield from (None if tensor is None else full(tensor) for tensor in found)
        else:
            for together in _messages(tensor for tensor in found if is_dtensor(tensor)):
                yield from _gathered(together, where[0])


def _where(tensor: Tensor | None) -> "tuple[DeviceMesh, torch.device] | None":
    """Return the mesh whose ranks each hold some rows of a tensor; None if it isn't spread, or in another way."""
    if tensor is None or not is_dtensor(tensor) or not tensor.numel() or tensor.is_meta:
        return None
    from torch.distributed.tensor import Shard  # where there is a DTensor this is imported: it takes 0.4 s

    mesh, placements = tensor.device_mesh, tensor.placements
    by_rows = len(placements) == 1 and type(placements[0]) is Shard and placements[0].dim == 0
    return (mesh, tensor.device) if by_rows and mesh.get_coordinate() is not None else None


def _messages(tensors: "Iterable[DTensor]") -> "Iterator[list[DTensor]]":
    """Cut tensors into what travels together; one that is larger than a message is alone in its own."""
    together: list[DTensor] = []
    size = 0
    for tensor in tensors:
        size += _bytes(tensor)
        if together and size > _MESSAGE:
            yield together
            together, size = [], _bytes(tensor)
        together.append(tensor)
    yield together


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _gathered(tensors: "list[DTensor]", mesh: "DeviceMesh") -> Iterator[Tensor]:
    """Send this rank's rows of each tensor as bytes, which every backend knows; yield the whole tensors."""
    # As torch.chunk cuts: the last ranks may have fewer rows, or none.
    shares = [-(-len(tensor) // mesh.size()) * prod(tensor.shape[1:]) * tensor.element_size() for tensor in tensors]
    with torch.no_grad():
        sent = torch.cat([_padded(tensor.to_local(), share) for tensor, share in zip(tensors, shares, strict=True)])
    received = sent.new_empty(mesh.size() * len(sent))
    dist.all_gather_into_tensor(received, sent, group=mesh.get_group())
    for tensor, part in zip(tensors, torch.split(received.view(mesh.size(), -1), shares, dim=1), strict=True):
        yield ranks.as_numbers(part, tensor.dtype).view(-1, *tensor.shape[1:])[: len(tensor)]


def _padded(shard: Tensor, share: int) -> Tensor:
    found = ranks.as_bytes(shard)
    return torch.nn.functional.pad(found, (0, share - len(found)))
