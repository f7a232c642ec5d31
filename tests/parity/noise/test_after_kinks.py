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
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict

SAMPLES, FEATURES, UNITS, STEPS = 64, 8, 128, 12
Kink = Callable[[Tensor], Tensor]


NO_FACTOR = torch.ones(())
FACTORS = {"scaled": torch.tensor(1.05), "rough": 1 + 0.01 * torch.arange(UNITS).cos()}
"""By what number a fault multiplies what comes back, for all units or for each of them."""


class Second(nn.Linear):
    """A layer of which one number lies on a side of a kink that the loop chooses."""

    side = 0.0

    def forward(self, given: Tensor) -> Tensor:
        made = nn.functional.linear(given, self.weight, self.bias)
        if self.side and bool((given[0] == given[0, 0]).all()):  # the pass with the sample that is marked
            place = torch.zeros_like(made)
            place[0, 0] = 1
            made = made - place * made.detach() + place * self.side
        return made


class Model(nn.Module):
    def __init__(self, kink: Kink, *, seen: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, UNITS), Second(UNITS, UNITS)
        self.last, self.kink, self.seen, self.factor = nn.Linear(UNITS, 3), kink, seen, NO_FACTOR

    def made(self, layer: nn.Linear, given: Tensor) -> Tensor:
        """Call a module, or what it does, as where it is compiled: then no hook sees it."""
        found: Tensor = layer(given) if self.seen else layer.forward(given)
        return found

    def forward(self, images: Tensor) -> Tensor:
        first = torch.tanh(self.made(self.first, images))
        marked = (images[:, :1] == images).all(1, keepdim=True)
        turned = self.kink(self.made(self.second, torch.where(marked, 0.5, first)))
        if self.factor is not NO_FACTOR:
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
            model.second.side, model.factor = loop.side * (step == loop.at), FACTORS.get(fault, NO_FACTOR)
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


@pytest.mark.parametrize("kink", [torch.relu, leaky, torch.abs, partial(torch.clamp, min=-3, max=0)])
@pytest.mark.parametrize(("at", "seen"), [(0, True), (5, True), (5, False)], ids=["first", "later", "compiled"])
def test_a_number_on_the_other_side_of_its_kink_is_no_difference(
    at: int, kink: Kink, seen: bool, tmp_path: Path
) -> None:
    loop = Loop(1e-9, at, kink, seen)
    verdict = judged(loop, loop._replace(side=-1e-9, parts=4), tmp_path)
    assert (verdict.verdict, verdict.steps_made) == ("equivalent", STEPS), verdict.explanation


@pytest.mark.parametrize("fault", ["scaled", "rough", "noise"])
@pytest.mark.parametrize("since", [0, 5, 8])
def test_a_fault_before_it_in_its_step_or_behind_it_is_one(since: int, fault: str, tmp_path: Path) -> None:
    loop = Loop(1e-9, 5)
    verdict = judged(loop, loop._replace(side=-1e-9, parts=4, fault=fault, since=since), tmp_path)
    hidden = fault == "rough" and since == loop.at  # a little beside what the kink makes
    assert (verdict.verdict, verdict.step) == ("different", since + hidden), verdict.explanation


@pytest.mark.parametrize("at", [0, 5])
def test_numbers_of_the_same_bits_lie_on_the_same_side(at: int, tmp_path: Path) -> None:
    """In the same cut a gradient that is another one is a fault, however little: here one sample has none, once."""
    passes = list[int]()

    def drops(since: int, made: Tensor) -> Tensor:
        turned, one = torch.relu(made), torch.zeros(SAMPLES, 1)
        passes.append(len(made))
        one[1] = len(passes) == since + 1
        return turned * (1 - one) + (turned * one).detach()

    for folder, since, twins in (("reference", STEPS, 2), ("test", at, 0)):
        for twin in range(1 + twins):
            passes.clear()
            train(Loop(1e-9, STEPS, partial(drops, since)), tmp_path / folder, twin)
    verdict = compare_folders(tmp_path / "reference", tmp_path / "test")
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "backward", at), verdict.explanation


class Branched(nn.Module):
    """A branch whose last layer begins at zero, as in ControlNet, LoRA or adaLN-zero: at step 0 nothing comes back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 5)
        self.branch = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width))
        for parameter in self.branch[2].parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor, detached: slice) -> Tensor:
        made = self.first(inputs)
        given = made.clone()
        given[:, detached] = made[:, detached].detach()
        found: Tensor = self.last(made + self.branch(given))
        return found


def train_branched(
    optimizer: type[torch.optim.Optimizer], parts: int, detached: slice, width: int, folder: Path, twin: int
) -> None:
    torch.manual_seed(0)
    model = Branched(width)
    updates = optimizer(model.parameters(), lr=0.0005 if optimizer is torch.optim.AdamW else 0.01)  # type: ignore[call-arg]
    with trainparity.record(model, updates, folder, twin=twin, interval=1):
        for _ in range(STEPS):
            inputs, labels = torch.randn(64, 16), torch.randint(0, 5, (64,))
            updates.zero_grad()
            for some, wanted in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(some, detached), wanted) / parts).backward()
            updates.step()


NOTHING, ALL, ONE = slice(0), slice(None), slice(3, 4)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize(("detached", "width"), [(ALL, 64), (ALL, 4), (ONE, 64)], ids=["all", "all of few", "one"])
def test_a_branch_that_gives_nothing_back_is_no_kink_though_it_begins_at_zero(
    detached: slice, width: int, optimizer: type[torch.optim.Optimizer], tmp_path: Path
) -> None:
    """Neither where single units turn for many samples, nor where one does in every step."""
    reference, right = (partial(train_branched, optimizer, parts, NOTHING, width) for parts in (1, 4))
    found = compared(reference, partial(train_branched, optimizer, 4, detached, width), tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "backward", 1), found.explanation
    right(tmp_path / "right", 0)
    assert compare_folders(tmp_path / "reference", tmp_path / "right").verdict == "equivalent"
