"""What all ranks' passes show, where one of them alone is off."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trainparity
from tests.support.on_ranks import on_ranks
from trainparity.parity.compare import compare_folders


def _train(rank: int, folder: str) -> Tensor:
    """Train twice, with a rank's BatchNorm in evaluation mode in the second run."""
    for name in ("a", "b"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        model[1].train(name == "a" or rank == 0)
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainparity.record(wrapped, optimizer, Path(folder) / name, interval=1):
            for batch in torch.randn(3, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                wrapped(batch[rank::2]).square().mean().backward()
                optimizer.step()
    return torch.zeros(0)


def test_evaluation_mode_on_one_rank_is_named(tmp_path: Path) -> None:
    on_ranks(2, tmp_path, _train, str(tmp_path))
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause) == ("different", "eval-mode"), found.explanation
