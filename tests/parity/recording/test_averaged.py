"""An optimizer that averages gradients over ranks as it updates is judged as DDP is, clipped or not."""

import subprocess
from pathlib import Path

import pytest

from tests.support.scripts import torchrun
from trainparity.parity.compare import compare_folders

SCRIPT = """
import sys, torch, trainparity
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

class Averaging(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad.clone()
                dist.all_reduce(gradient)
                if not lost or rank == 0:
                    parameter.data.add_(gradient, alpha=-group["lr"] / size)

def train(name):
    global lost
    lost = "lost" in name
    torch.manual_seed(0)
    data = torch.randn(5, 16, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    averages = "averaging" in name
    rate = 2e-1 if "rate" in name else 1e-1
    optimizer = (Averaging if averages else torch.optim.SGD)(model.parameters(), lr=rate)
    called = model if averages else nn.parallel.DistributedDataParallel(model)
    with trainparity.record(called, optimizer, f"{sys.argv[1]}/{name}"):
        for batch in data:
            model.zero_grad()
            called(batch[rank::size]).square().mean().backward()
            optimizer.step()

for name in ("ddp", "averaging", "averaging-rate", "averaging-lost"):
    train(name)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("averaged")
    (folder / "train.py").write_text(SCRIPT)
    command = [*torchrun(2).split(), str(folder / "train.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_it_is_the_same_training_as_ddp(runs: Path) -> None:
    for left, right in (("ddp", "averaging"), ("averaging", "ddp")):
        verdict = compare_folders(runs / left, runs / right)
        assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


@pytest.mark.parametrize(("name", "cause"), [("averaging-rate", "learning-rate"), ("averaging-lost", "ranks-disagree")])
def test_its_faults_are_named(name: str, cause: str, runs: Path) -> None:
    verdict = compare_folders(runs / "ddp", runs / name)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation
