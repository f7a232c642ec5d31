"""The ranks of the process group that a loop has set up, if any; everything on CPU tensors."""

from collections.abc import Sequence
from hashlib import blake2b

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


def gather_ragged(values: Tensor) -> Tensor:
    """Stack every rank's tensor, zero-padded to the largest first dimension: [R, n, ...]."""
    longest = int(gather(torch.tensor([len(values)])).amax())
    padded = torch.zeros(longest, *values.shape[1:], dtype=values.dtype)
    padded[: len(values)] = values
    return gather(padded)


def gather_named(names: Sequence[str], values: Tensor) -> Tensor:
    """Stack every rank's rows by their names: [R, len(names), ...], zero where another rank has no such row.

    Ranks may have rows of other names, as of experts that got no token on one of them. Each gets its own rows' names.
    """
    keys = [int.from_bytes(blake2b(name.encode(), digest_size=7).digest()) + 1 for name in names]
    every, found = gather_ragged(torch.tensor(keys, dtype=torch.int64)), gather_ragged(values)
    places = [{key: place for place, key in enumerate(theirs)} for theirs in every.tolist()]
    aligned = torch.zeros(len(places), *values.shape, dtype=values.dtype)
    for other, (theirs, rows) in enumerate(zip(places, found, strict=True)):
        common = [(place, theirs[key]) for place, key in enumerate(keys) if key in theirs]
        aligned[other, [mine for mine, _ in common]] = rows[[place for _, place in common]]
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
