"""A number at a kink, which rounding puts on one side in one run and on the other in another: its gradient jumps."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict

SAMPLES, FEATURES, UNITS, STEPS = 64, 8, 128, 12
Kink = Callable[[Tensor], Tensor]


class Model(nn.Module):
    """Three layers, of which the loop chooses on which side of a kink one number of the second one's output lies."""

    def __init__(self, kink: Kink, *, seen: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, UNITS), nn.Linear(UNITS, UNITS)
        self.last, self.kink, self.seen = nn.Linear(UNITS, 3), kink, seen
        self.side, self.factor = 0.0, 1.0

    def made(self, layer: nn.Linear, given: Tensor) -> Tensor:
        """Call a module, or what it does, as where it is compiled: then no hook sees it."""
        found: Tensor = layer(given) if self.seen else nn.functional.linear(given, layer.weight, layer.bias)
        return found

    def forward(self, images: Tensor) -> Tensor:
        made = self.made(self.second, torch.tanh(self.made(self.first, images)))
        if self.side and bool((images[0] == images[0, 0]).all()):  # the pass with the sample that is marked
            place = torch.zeros_like(made)
            place[0, 0] = 1
            made = made - place * made.detach() + place * self.side
        turned = self.kink(made)
        if self.factor != 1:
            turned.register_hook(lambda gradient: gradient * self.factor)
        return self.made(self.last, turned)


class Loop(NamedTuple):
    side: float
    """Of the kink, in one step."""
    at: int
    """That step."""
    kink: Kink = torch.relu
    seen: bool = True
    """Whether hooks see the modules."""
    parts: int = 1
    fault: str = ""
    since: int = STEPS
    """The step that it begins in."""


def train(loop: Loop, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Model(loop.kink, seen=loop.seen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    draws, others = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(STEPS):
            images, labels = torch.randn(SAMPLES, FEATURES, generator=draws), torch.arange(SAMPLES) % 3
            images[0] = images[0, 0]
            fault = loop.fault if step >= loop.since else ""
            model.side, model.factor = loop.side if step == loop.at else 0.0, 1.05 if fault == "scaled" else 1.0
            optimizer.zero_grad()
            for some, wanted in zip(images.chunk(loop.parts), labels.chunk(loop.parts), strict=True):
                (nn.functional.cross_entropy(model(some), wanted) / loop.parts).backward()
            if fault == "noise":
                for parameter in model.first.parameters():
                    assert parameter.grad is not None
                    parameter.grad += 0.2 * parameter.grad.abs().mean() * torch.randn(parameter.shape, generator=others)
            optimizer.step()


def judged(reference: Loop, test: Loop, folder: Path) -> Verdict:
    return compared(partial(train, reference), partial(train, test), folder)


def leaky(made: Tensor) -> Tensor:
    return nn.functional.leaky_relu(made, 0.1)


@pytest.mark.parametrize("seen", [True, False], ids=["modules", "compiled"])
@pytest.mark.parametrize("kink", [torch.relu, leaky, torch.abs, partial(torch.clamp, min=-3, max=0)])
@pytest.mark.parametrize("at", [0, 5])
def test_a_number_on_the_other_side_of_its_kink_is_no_difference(
    at: int, kink: Kink, seen: bool, tmp_path: Path
) -> None:
    loop = Loop(1e-9, at, kink, seen)
    verdict = judged(loop, loop._replace(side=-1e-9, parts=4), tmp_path)
    assert (verdict.verdict, verdict.steps_made) == ("equivalent", STEPS), verdict.explanation


@pytest.mark.parametrize("fault", ["scaled", "noise"])
@pytest.mark.parametrize("since", [0, 5, 8])
def test_a_fault_before_it_in_its_step_or_behind_it_is_one(since: int, fault: str, tmp_path: Path) -> None:
    loop = Loop(1e-9, 5)
    verdict = judged(loop, loop._replace(side=-1e-9, parts=4, fault=fault, since=since), tmp_path)
    assert (verdict.verdict, verdict.step) == ("different", since), verdict.explanation
