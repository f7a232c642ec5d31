"""Ranks with unequal numbers of batches, inside of DDP's `join()`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _DDPJoinHook

import trainparity
from tests.support.on_ranks import on_ranks
from trainparity.parity.recording.trace import Trace


@pytest.mark.parametrize(
    ("batches", "sharded"), [((5, 3), False), ((3, 5), False), ((5, 3), True), ((5, 5), False)], ids=str
)
def test_a_rank_without_data_ends_the_recording_and_not_the_training(
    batches: tuple[int, int], sharded: bool, tmp_path: Path
) -> None:
    for recorded, plain in on_ranks(2, tmp_path, _trained, str(tmp_path / "run"), batches, sharded):
        assert torch.equal(recorded, plain)
    layout, even = Trace.load(tmp_path / "run").layout, batches[0] == batches[1]
    assert layout.steps == list(range(2 * min(batches) if even else min(batches)))
    said = f"at step 3 rank {batches.index(min(batches))} has no more data: in `join()`"
    assert str(layout.settings.get("ended", "")).startswith(said) != even


def _trained(rank: int, folder: str, batches: list[int], sharded: bool) -> Tensor:
    """Return the weights after two epochs, recorded and not."""
    original = _DDPJoinHook.main_hook
    model, optimizer = _made(sharded)
    recorder = trainparity.record(model, optimizer, folder, interval=1)
    recorded = _two_epochs(model, optimizer, batches[rank])
    assert bool(recorder.ended) == (batches[0] != batches[1])
    recorder.close()
    assert _DDPJoinHook.main_hook is original
    return torch.stack([recorded, _two_epochs(*_made(sharded), batches[rank])])


def _made(sharded: bool) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))
    kind: Any = torch.optim.SGD
    return model, ZeroRedundancyOptimizer(model.parameters(), kind, lr=0.1) if sharded else kind(
        model.parameters(), 0.1
    )


def _two_epochs(model: DistributedDataParallel, optimizer: torch.optim.Optimizer, batches: int) -> Tensor:
    for _ in range(2):
        with Join([model, optimizer]) if isinstance(optimizer, ZeroRedundancyOptimizer) else model.join():
            for batch in range(batches):
                optimizer.zero_grad()
                model(torch.arange(12.0).view(3, 4).sin() + batch).square().sum().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
