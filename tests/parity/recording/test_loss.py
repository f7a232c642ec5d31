"""What a trace says of a step's loss, and what looking at its graph costs."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainparity import record
from trainparity.parity.recording.trace import Trace

IMAGES = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.rand(8, 3, generator=torch.Generator().manual_seed(1))


def squares(outputs: Tensor) -> Tensor:
    return functional.mse_loss(outputs, TARGETS)


def test_a_step_has_the_sum_of_its_losses_without_those_of_other_models(tmp_path: Path) -> None:
    model, other = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with record(model, optimizer, tmp_path):
        for _ in range(2):
            losses = [squares(model(IMAGES)) / 2 for _ in range(2)]
            for loss in losses:
                scaler.scale(loss).backward()
            squares(other(IMAGES)).backward()
            scaler.step(optimizer)
            scaler.update()
    seen = Trace.load(tmp_path).arrays["rank/loss"][0]
    assert seen.tolist() == pytest.approx([float(sum(losses).detach())])


def test_the_value_of_a_loss_is_not_known_where_the_loop_weighs_it(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(model, optimizer, tmp_path):
        squares(model(IMAGES)).backward(torch.tensor(0.5))
        optimizer.step()
    assert Trace.load(tmp_path).arrays["rank/loss"].isnan().all()


def test_no_loss_is_seen_where_gradients_are_set_by_hand(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(model, optimizer, tmp_path):
        model.weight.grad, model.bias.grad = torch.autograd.grad(squares(model(IMAGES)), list(model.parameters()))
        optimizer.step()
    assert Trace.load(tmp_path).arrays["rank/loss"].isnan().all()


DEEP = """
import sys, torch, trainparity
class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 2)
    def forward(self, x):
        x = self.first(x)
        for _ in range(80_000):
            x = x * 0.99999
        return x
model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with trainparity.record(model, optimizer, sys.argv[1]):
    model(torch.ones(2, 2)).square().mean().backward()
    optimizer.step()
"""


def test_a_graph_of_very_many_operations_is_freed_as_without_a_recorder(tmp_path: Path) -> None:
    """What Python has seen of it is freed by a call inside a call, and the stack has an end."""
    done = subprocess.run([sys.executable, "-c", DEEP, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
