"""Ranks whose optimizers hold parts of one model (ZeRO) are judged as those that hold all of it."""

import subprocess
from pathlib import Path

import pytest

from tests.support.scripts import torchrun
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict

SCRIPT = """
import sys, torch, trainparity
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

class Shared(torch.optim.AdamW):
    # All ranks hold all parameters; each updates some of them and sends these, as Muon's step does over matrices.
    def step(self):
        (group,) = self.param_groups
        everything = group["params"]
        group["params"] = [p for n, p in enumerate(everything) if n % size == rank]
        super().step()
        group["params"] = everything
        for n, parameter in enumerate(everything):
            dist.broadcast(parameter.data, n % size)

def train(name):
    torch.manual_seed(0)
    data = torch.randn(5, 16, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    parameters = list(model.parameters())
    owned = [p for n, p in enumerate(parameters) if n % size == rank]
    rate = 2e-2 if "rate" in name and rank else 1e-2
    if name.startswith("torch"):
        optimizer = ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.AdamW, lr=rate)
    else:
        held = parameters if name in ("plain", "shared", "shared-lost") else owned
        optimizer = (Shared if "shared" in name else torch.optim.AdamW)(held, lr=rate)
    called = model if name in ("reduced", "torch-alone") else nn.parallel.DistributedDataParallel(model)
    with trainparity.record(called, optimizer, f"{sys.argv[1]}/{name}"):
        for step, batch in enumerate(data):
            model.zero_grad()
            if name == "shared-lost" and step == 3:
                optimizer.state.clear()
            called(batch[rank::size]).square().mean().backward()
            if name == "reduced":  # each rank gets the gradients of its own part alone
                for n, parameter in enumerate(parameters):
                    dist.reduce(parameter.grad.div_(size), dst=n % size)
                    parameter.grad = parameter.grad if n % size == rank else None
            optimizer.step()
            if name in ("parts", "reduced", "rate"):
                for n, parameter in enumerate(parameters):
                    dist.broadcast(parameter.data, n % size)

def train_later(name):
    # The last parameter, which is one rank's alone, is given to the optimizer at step 2.
    torch.manual_seed(0)
    data = torch.randn(5, 16, 6)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    parameters = list(model.parameters())
    own = [n for n in range(4) if name != "later-parts" or n % size == rank]
    make = {} if name != "later-torch" else {"optimizer_class": torch.optim.AdamW}
    kind = ZeroRedundancyOptimizer if make else torch.optim.AdamW
    optimizer = kind([parameters[n] for n in own if n < 3], lr=1e-2, **make)
    called = nn.parallel.DistributedDataParallel(model)
    rate = 2e-2 if name == "later-rate" else 1e-2
    with trainparity.record(called, optimizer, f"{sys.argv[1]}/{name}", interval=1):
        for step, batch in enumerate(data):
            if step == 2 and 3 in own:
                optimizer.add_param_group({"params": [parameters[3]], "lr": rate})
            model.zero_grad()
            called(batch[rank::size]).square().mean().backward()
            nn.utils.clip_grad_norm_(parameters, 0.1)
            optimizer.step()
            if name == "later-parts":
                for n, parameter in enumerate(parameters):
                    dist.broadcast(parameter.data, n % size)

for name in ("later", "later-parts", "later-torch", "later-rate"):
    train_later(name)
names = "plain torch parts reduced kept rate torch-rate torch-alone shared shared-lost"
for name in names.split():
    train(name)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("holders")
    (folder / "train.py").write_text(SCRIPT)
    command = [*torchrun(2).split(), str(folder / "train.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def _judged(runs: Path, name: str) -> Verdict:
    return compare_folders(runs / "plain", runs / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "parts", "reduced", "shared"])
def test_ranks_that_update_parts_and_send_them_are_the_same_training(runs: Path, name: str) -> None:
    found = _judged(runs, name)
    assert found.weights in ("bitwise", "equivalent"), (found.reason, found.explanation)
    assert found.ranks_agree


@pytest.mark.parametrize("name", ["later-parts", "later-torch"])
def test_a_parameter_that_one_rank_updates_from_a_later_step_on_is_the_same_training(runs: Path, name: str) -> None:
    found = compare_folders(runs / "later", runs / name)
    assert found.weights in ("bitwise", "equivalent"), (found.cause, found.explanation, found.reason)
    held = Trace.load(runs / name).arrays["held"]
    assert held.tolist() == [[True, True, True, step >= 2] for step in range(5)]


def test_options_of_a_parameter_that_ranks_update_later_are_seen(runs: Path) -> None:
    found = compare_folders(runs / "later-parts", runs / "later-rate")
    assert (found.verdict, found.cause, found.step) == ("different", "learning-rate", 2)


def test_parts_that_no_rank_sends_are_a_difference(runs: Path) -> None:
    found = _judged(runs, "kept")
    assert (found.verdict, found.cause, found.ranks_agree) == ("different", "ranks-disagree", False)
    assert found.step == 1
    assert found.advice and "send" in found.advice


def test_options_of_a_part_are_those_of_the_rank_that_updates_it(runs: Path) -> None:
    found = _judged(runs, "rate")
    assert (found.verdict, found.cause) == ("different", "learning-rate")


def test_what_all_ranks_have_lost_is_seen_where_each_keeps_a_part(runs: Path) -> None:
    found = _judged(runs, "shared-lost")
    assert (found.verdict, found.cause, found.step) == ("different", "optimizer-state", 3)


def test_options_of_the_optimizer_inside_are_those_of_its_rank(runs: Path) -> None:
    found = _judged(runs, "torch-rate")
    assert (found.verdict, found.cause) == ("different", "learning-rate")


def test_parts_that_a_rank_updates_by_its_own_gradient_alone_are_named(runs: Path) -> None:
    found = _judged(runs, "torch-alone")
    assert (found.verdict, found.cause, found.ranks_agree) == ("different", "ranks-disagree", True)
    assert found.explanation and "not averaged" in found.explanation
