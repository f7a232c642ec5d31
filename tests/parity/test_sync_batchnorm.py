"""SyncBatchNorm over two ranks is the same training as BatchNorm over the full batch; it needs a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainparity.parity.compare import compare_folders

SCRIPT = """
import os, sys, torch, trainparity
import torch.distributed as dist
from torch import nn

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")  # two ranks share one GPU, which NCCL refuses
rank, size = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
torch.backends.cudnn.allow_tf32 = False
torch.manual_seed(0)
data = torch.randn(6, 32, 3, 8, 8)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1)).cuda()
if distributed:
    model = nn.parallel.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with trainparity.record(model, optimizer, sys.argv[1], samples=lambda args, kwargs: ids):
    for step, batch in enumerate(data):
        ids = 32 * step + torch.arange(32)[rank::size]
        optimizer.zero_grad()
        (model(batch[rank::size].cuda()).square().sum() / 32 * size).backward()
        optimizer.step()
if distributed:
    dist.destroy_process_group()
"""


@pytest.mark.cuda
def test_sync_batchnorm_over_ranks_is_equivalent_to_the_full_batch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    for extra, name in (([], "plain"), (torchrun, "synced")):
        subprocess.run([sys.executable, *extra, str(script), str(tmp_path / name)], check=True)
    subprocess.run(
        [sys.executable, str(script), str(tmp_path / "plain")], check=True, env=os.environ | {"TRAINPARITY_TWIN": "1"}
    )
    found = compare_folders(tmp_path / "plain", tmp_path / "synced")
    assert found.weights in ("bitwise", "equivalent"), (found.reason, found.explanation)
