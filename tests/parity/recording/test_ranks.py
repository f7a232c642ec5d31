"""What ranks tell each other, on two processes that are forked."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from trainparity.parity.recording import ranks


def on_two_ranks(folder: Path, work: Callable[[int], Tensor]) -> list[Tensor]:
    """Return what each rank made."""
    children = [os.fork() or _as_rank(rank, folder, work) for rank in range(2)]
    assert not any(os.waitpid(child, 0)[1] for child in children)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _as_rank(rank: int, folder: Path, work: Callable[[int], Tensor]) -> int:
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
        torch.save(work(rank), folder / f"{rank}.pt")
    except BaseException:
        os._exit(1)
    os._exit(0)


def test_rows_of_other_names_are_stacked_by_name(tmp_path: Path) -> None:
    """An expert that got no token on one rank was not called there."""
    names = [["gate", "expert.0", "expert.2"], ["gate", "expert.2"]]
    values = [torch.tensor([[1.0, 1], [2, 2], [3, 3]]), torch.tensor([[10.0, 10], [30, 30]])]
    first, second = on_two_ranks(tmp_path, lambda rank: ranks.gather_named(names[rank], values[rank]))
    assert first.sum(0).tolist() == [[11, 11], [2, 2], [33, 33]]
    assert second.sum(0).tolist() == [[11, 11], [33, 33]]
