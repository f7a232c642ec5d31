"""Clipping and the step of an optimizer that the loop compiles are recorded, and stay what they were."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import trainparity
from trainparity.parity.recording.trace import Trace

STEPS = 16
"""More than Dynamo compiles one function anew for."""


def one(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def two(model: nn.Module) -> Any:
    return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]  # type: ignore[index]


def train(make: Callable[[nn.Module], Any], folder: Path | None) -> Tensor:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = make(model)
    members = optimizer if isinstance(optimizer, list) else [optimizer]

    @torch.compile(backend="eager")
    def step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        for member in members:
            member.step()

    with nullcontext() if folder is None else trainparity.record(model, optimizer, folder, first=STEPS):
        for data in torch.randn(STEPS, 8, 4):
            for member in members:
                member.zero_grad()
            model(data).square().sum().backward()
            step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("make", [one, two])
def test_a_compiled_step_is_recorded_and_the_same(make: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    alone = train(make, None)
    counters.clear()
    assert torch.equal(train(make, tmp_path), alone)
    assert Trace.load(tmp_path).layout.steps == [*range(STEPS)]
    assert counters["frames"]["total"] < STEPS  # none is compiled anew in each step
