"""The ranks of the process group that a loop has set up, if any; everything on CPU tensors."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import prod

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    """Return this process's rank; 0 outside a process group."""
    return dist.get_rank() if _initialised() else 0


def world_size() -> int:
    """Return the number of ranks; 1 outside a process group."""
    return dist.get_world_size() if _initialised() else 1


def gather(values: Tensor) -> Tensor:
    """Stack every rank's tensor: [R, ...], on every rank. Shapes must agree."""
    if not _initialised():
        return values[None]
    mine = values.contiguous().to(_device())
    parts = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(parts, mine)
    return torch.stack(parts).cpu()


def gather_alike(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Stack every rank's tensors, [R, ...] each, in one message for all. Names and shapes must agree."""
    if not _initialised():
        return {name: value[None] for name, value in values.items()}
    sizes = [value.numel() * value.element_size() for value in values.values()]
    parts = torch.split(gather(torch.cat([*map(as_bytes, values.values())])), sizes, dim=1)
    return {
        name: as_numbers(part, value.dtype).view(-1, *value.shape)
        for (name, value), part in zip(values.items(), parts, strict=True)
    }


def gather_each(values: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
    """Return every rank's tensors, in two messages for all. Names and shapes must agree, but for first dimensions."""
    if not _initialised():
        return {name: [value] for name, value in values.items()}
    lengths = gather(torch.tensor([len(value) for value in values.values()]))  # [R, tensors]
    sizes = lengths * torch.tensor([prod(v.shape[1:]) * v.element_size() for v in values.values()])
    sent = torch.cat([*map(as_bytes, values.values())])
    every = gather(torch.nn.functional.pad(sent, (0, int(sizes.sum(1).amax()) - len(sent))))
    found: dict[str, list[Tensor]] = {name: [] for name in values}
    for theirs, their_sizes, their_lengths in zip(every, sizes.tolist(), lengths.tolist(), strict=True):
        parts = torch.split(theirs[: sum(their_sizes)], their_sizes)
        for (name, value), part, length in zip(values.items(), parts, their_lengths, strict=True):
            found[name].append(as_numbers(part, value.dtype).view(length, *value.shape[1:]))
    return found


def as_bytes(values: Tensor) -> Tensor:
    """Return a tensor's bytes: uint8 [n], which every backend sends."""
    return values.detach().contiguous().flatten().view(torch.uint8)


def as_numbers(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes as numbers, in a copy, which begins where numbers of their type may."""
    return part.clone(memory_format=torch.contiguous_format).view(dtype)


def keys_of(names: Sequence[str]) -> Tensor:
    """Return a number for each name, the same on every rank: int64 [len(names)]."""
    keys = [int.from_bytes(blake2b(name.encode(), digest_size=7).digest()) + 1 for name in names]
    return torch.tensor(keys, dtype=torch.int64)


def are_apart(by_rank: Tensor) -> bool:
    """Tell whether ranks have other numbers than the first: [R, ...], as gathered."""
    return bool((by_rank != by_rank[:1]).any())


def apart(values: Tensor) -> Tensor:
    """Return in which places ranks have other numbers, bool like `values`. Every rank must call it."""
    by_rank = gather(values)
    return (by_rank != by_rank[:1]).any(0)


def by_key(keys: Tensor, every: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """Stack every rank's rows in the order of this rank's keys: [R, len(keys), ...], zero where a rank has no such row.

    Ranks may have rows of other names, as of experts that got no token on one of them.

    Args:
        keys: This rank's, int64 [n].
        every: Each rank's.
        rows: Each rank's rows, [their n, ...].
    """
    if len(rows) == 1:
        return rows[0][None]
    aligned = torch.zeros(len(rows), len(keys), *rows[0].shape[1:], dtype=rows[0].dtype)
    for other, (theirs, found) in enumerate(zip(every, rows, strict=True)):
        places = {key: place for place, key in enumerate(theirs.tolist())}
        common = [(place, places[key]) for place, key in enumerate(keys.tolist()) if key in places]
        aligned[other, [mine for mine, _ in common]] = found[[place for _, place in common]]
    return aligned


def broadcast(values: Tensor, source: int) -> Tensor:
    """Return one rank's tensor on every rank. Shapes and types must agree."""
    sent = values.contiguous().to(_device(), copy=True)
    dist.broadcast(sent, source)
    return sent


def mean(values: Tensor) -> Tensor:
    """Return the mean of all ranks' tensors, on every rank: float32, or float64 of float64. Shapes must agree."""
    dense = values.to_dense() if values.is_sparse else values
    summed = dense.to(_device(), torch.promote_types(dense.dtype, torch.float32), copy=True).contiguous()
    dist.all_reduce(summed)
    return summed / world_size()


def _initialised() -> bool:
    return dist.is_available() and dist.is_initialized()


def _device() -> torch.device:
    """Return where this group's collectives run: the CPU unless only NCCL is there."""
    return torch.device("cpu" if "cpu:" in str(dist.get_backend_config()) else "cuda")
