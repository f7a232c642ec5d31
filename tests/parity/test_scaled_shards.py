"""FSDP2's shards that each rank scales by a number of its own: by a limit of its own, or by anything else."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import trainparity
from tests.support.on_ranks import on_ranks
from trainparity.parity.compare import compare_folders


def _train(model: nn.Module, folder: str, rank: int, world_size: int, how: str) -> None:
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.05), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, interval=1):
        for step in range(6):
            optimizer.zero_grad()
            batch = torch.randn(16, 8, generator=draws).chunk(world_size)[rank]
            (5 * model(batch).square().mean()).backward()
            shards = [getattr(each.grad, "_local_tensor", each.grad) for each in model.parameters()]
            length = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in shards])))
            factor = {"local clip": min(1.0, 0.3 / length), "half": 0.5 if rank else 1.0, "counts": 1 / (2 + rank)}
            factor |= {
                "one clips": factor["local clip"] if rank else 1.0,
                "fractions": 1.0 - rank * (0.5 - 0.05 * step),
            }
            for shard in shards:
                shard *= factor.get(how, min(1.0, 0.3 / length) if how == "both clips" else 1.0)
            if how == "both clips":
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def _sharded(rank: int, folder: str, how: str) -> Tensor:
    _train(fully_shard(_model(), mesh=init_device_mesh("cpu", (2,))), folder, rank, 2, how)
    return torch.zeros(())


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("", None), ("local clip", "clipping"), ("both clips", "clipping"), ("half", "loss-normalisation"),
        ("counts", "loss-normalisation"), ("one clips", "clipping"), ("fractions", "loss-normalisation"),
    ],
)  # fmt: skip
def test_a_limit_is_told_from_another_factor(how: str, cause: str | None, tmp_path: Path) -> None:
    _train(_model(), str(tmp_path / "a"), 0, 1, "")
    on_ranks(2, tmp_path, _sharded, str(tmp_path / "b"), how)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert found.cause == cause, found.explanation
    assert (found.verdict == "different") == (cause is not None)
