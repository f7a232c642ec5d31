"""The ranks of the process group that a loop has set up, if any; everything on CPU tensors."""

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


def _initialised() -> bool:
    return dist.is_available() and dist.is_initialized()


def _device() -> torch.device:
    """Return where this group's collectives run: the CPU unless only NCCL is there."""
    return torch.device("cpu" if "cpu:" in str(dist.get_backend_config()) else "cuda")
