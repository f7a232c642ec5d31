"""What cannot be recorded is refused at once."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel

import trainparity
from tests.support.on_ranks import on_ranks


def test_fsdp_1_is_refused_before_it_trains(tmp_path: Path) -> None:
    assert all(on_ranks(2, tmp_path, _refused, str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def _refused(rank: int, folder: str) -> Tensor:
    for original in (False, True):  # whether the optimizer gets parameters of the model's names
        wrapped = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=original)
        for model in (wrapped, nn.Sequential(wrapped, nn.Linear(4, 2))):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with pytest.raises(TypeError, match=r"FullyShardedDataParallel.*fully_shard \(FSDP2\)"):
                trainparity.record(model, optimizer, folder)
    return torch.tensor(True)
