"""Optimizers inside of a wrapper without hooks of its own, which steps with all of them, or with one at a time."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import LABELS, compared
from trainparity.parity.compare import load


class Wrapper:
    """Holds optimizers, and steps with those that a function of the step's number gives."""

    def __init__(self, held: list[torch.optim.Optimizer], of_step: Callable[[int], list[int]]) -> None:
        self.held, self.of_step, self.made = held, of_step, 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for one in self.held for group in one.param_groups]

    def step(self) -> None:
        for place in self.of_step(self.made):
            self.held[place].step()
        self.made += 1


Make = Callable[[nn.Sequential], Wrapper]


def train(make: Make, parts: int, coarse: bool, folder: Path, twin: int, scaled: bool = False) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    wrapper = make(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=2, enabled=scaled)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, wrapper, folder, twin=twin, interval=1):  # type: ignore[arg-type]
        for step in range(6):
            model.zero_grad()
            for some, labels in zip(torch.randn(16, 4, generator=draws).chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(some).float()
                loss = nn.functional.cross_entropy(outputs, labels) / parts
                scaler.scale(loss * (float("inf") if scaled and step == 2 else 1)).backward()
            scaler.step(wrapper)  # type: ignore[arg-type]
            scaler.update()
            # What a loop writes after the step is none of its update.
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.999)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def sgd(model: nn.Module, lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


def spare_first(model: nn.Sequential) -> Wrapper:
    return Wrapper([sgd(model), adam(model)], lambda _: [1])


def spare_last(model: nn.Sequential) -> Wrapper:
    return Wrapper([adam(model), sgd(model)], lambda _: [0])


def changes(at: int, lr: float, model: nn.Sequential) -> Wrapper:
    return Wrapper([adam(model), sgd(model, lr)], lambda step: [int(step >= at)])


def both(lr: float, model: nn.Sequential) -> Wrapper:
    return Wrapper([adam(model), sgd(model[-1], lr)], lambda _: [0, 1])


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "make", [spare_first, spare_last, partial(changes, 3, 0.05), partial(both, 0.05)],
    ids=["spare first", "spare last", "changes", "both"],
)  # fmt: skip
def test_it_is_the_same_training_in_another_cut(make: Make, coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, make, 1, coarse), partial(train, make, 4, coarse), tmp_path)
    assert (verdict.verdict, verdict.steps_made) == ("equivalent", 6), verdict.explanation


@pytest.mark.parametrize("make", [spare_first, spare_last])
def test_options_and_class_are_those_of_the_one_that_steps(make: Make, tmp_path: Path) -> None:
    train(make, 1, False, tmp_path, 0)
    trace = load(tmp_path)
    assert (trace.layout.optimizer, set(trace.layout.updated_by())) == ("AdamW", {"AdamW"})
    assert trace.arrays["setting/lr"].unique().tolist() == [1e-2]


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("reference", "other", "cause", "step"),
    [
        (partial(changes, 3, 0.05), partial(changes, 4, 0.05), "schedule", 3),
        (partial(changes, 3, 0.05), partial(changes, 3, 0.06), "schedule", 3),
        (partial(both, 0.05), partial(both, 0.055), "learning-rate", 0),
    ],
    ids=["changed later", "another rate after it", "another rate of the second"],
)
def test_another_rate_of_what_steps_is_named(
    reference: Make, other: Make, cause: str, step: int, coarse: bool, tmp_path: Path
) -> None:
    verdict = compared(partial(train, reference, 1, coarse), partial(train, other, 1, coarse), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", cause, step), verdict.explanation


@pytest.mark.parametrize("make", [spare_first, partial(both, 0.05)], ids=["spare first", "both"])
def test_a_step_that_a_scaler_skips_is_counted(make: Make, tmp_path: Path) -> None:
    train(make, 1, False, tmp_path, 0, scaled=True)
    trace = load(tmp_path)
    assert trace.layout.made == 6
    assert trace.layout.steps == [*range(6)] and not bool(trace.arrays["scale/left"].any())


def test_a_scheduler_finds_the_step_of_a_wrapper_that_is_recorded(tmp_path: Path) -> None:
    """PyTorch's schedulers wrap an optimizer's bound `step`, and count its calls."""

    class Held(torch.optim.Optimizer):
        def __init__(self, one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
            self.each, self.param_groups = [one, other], one.param_groups + other.param_groups

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for one in self.each:
                one.step()

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    held = Held(sgd(model[0]), sgd(model[1]))
    with trainparity.record(model, held, tmp_path, interval=1):
        scheduler = torch.optim.lr_scheduler.ExponentialLR(held, 0.5)
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            held.step()
            scheduler.step()
    assert load(tmp_path).arrays["setting/lr"][:, 0].tolist() == [0.05, 0.025, 0.0125]


def pair(model: nn.Linear) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD([model.weight], lr=0.1), torch.optim.SGD([model.bias], lr=0.1)]


def test_a_copy_of_a_wrapper_that_is_recorded_steps_for_itself_and_the_wrapper_is_left_as_it_was(
    tmp_path: Path,
) -> None:
    model = nn.Linear(4, 4)
    wrapper = Wrapper(pair(model), lambda _: [0, 1])
    with trainparity.record(model, wrapper, tmp_path, interval=1):  # type: ignore[arg-type]
        model(torch.ones(2, 4)).sum().backward()
        wrapper.step()
        other, others = copy.deepcopy((model, wrapper))
        before = model.weight.detach().clone()
        other(torch.ones(2, 4)).sum().backward()
        others.step()
        assert torch.equal(model.weight, before) and not torch.equal(other.weight, before)
    assert "step" not in vars(wrapper) and load(tmp_path).layout.made == 1


def test_a_wrapper_whose_step_cannot_be_set_is_recorded(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Frozen:
        one: torch.optim.Optimizer
        other: torch.optim.Optimizer

        def step(self) -> None:
            self.one.step()
            self.other.step()

    model = nn.Linear(4, 4)
    frozen = Frozen(*pair(model))
    with trainparity.record(model, frozen, tmp_path, interval=1):  # type: ignore[arg-type]
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
            frozen.step()
    assert load(tmp_path).layout.made == 2


def train_by(whole: bool, parts: int, folder: Path, twin: int) -> None:
    """Train with what a wrapper holds, by its own step or the loop's; its spare one makes none."""
    torch.manual_seed(0)
    model = nn.Linear(4, 10)
    held = [*pair(model), torch.optim.AdamW([model.weight], lr=0.1)]
    wrapper, draws = Wrapper(held, lambda _: [0, 1]), torch.Generator().manual_seed(1)
    with trainparity.record(model, wrapper, folder, twin=twin, interval=1):  # type: ignore[arg-type]
        for _ in range(4):
            model.zero_grad()
            images = torch.randn(16, 4, generator=draws)
            for some, labels in zip(images.chunk(parts), LABELS.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(some), labels) / parts).backward()
            if whole:
                wrapper.step()
            else:
                held[0].step()
                held[1].step()


def test_a_loop_may_step_with_what_a_wrapper_holds_itself(tmp_path: Path) -> None:
    verdict = compared(partial(train_by, True, 1), partial(train_by, False, 4), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


class Lookahead(Wrapper):
    """Pulls weights back to slow ones after every third step of all that it holds."""

    def __init__(self, held: list[torch.optim.Optimizer], alpha: float) -> None:
        super().__init__(held, lambda _: [0, 1])
        self.alpha, self.fast = alpha, [p for group in self.param_groups for p in group["params"]]
        self.slow = [p.detach().clone() for p in self.fast]

    def step(self) -> None:
        super().step()
        if self.made % 3 == 0:
            with torch.no_grad():
                for fast, slow in zip(self.fast, self.slow, strict=True):
                    fast.copy_(slow.lerp_(fast, self.alpha))


def lookahead(alpha: float, model: nn.Sequential) -> Wrapper:
    return Lookahead([sgd(model[0]), adam(model[-1])], alpha)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("alpha", [0.5, 0.25])
def test_what_a_wrapper_does_after_its_members_is_of_its_step(alpha: float, coarse: bool, tmp_path: Path) -> None:
    reference, test = (partial(train, partial(lookahead, by), parts, coarse) for by, parts in ((0.5, 1), (alpha, 4)))
    verdict = compared(reference, test, tmp_path)
    expected = ("equivalent", None, None) if alpha == 0.5 else ("different", "update", 2)
    assert (verdict.verdict, verdict.cause, verdict.step) == expected, verdict.explanation


def test_a_member_that_steps_twice_in_a_step_makes_one(tmp_path: Path) -> None:
    def make(model: nn.Sequential) -> Wrapper:
        return Wrapper([sgd(model[0]), adam(model[-1])], lambda _: [0, 0, 1])

    train(make, 1, False, tmp_path, 0)
    sketches = load(tmp_path).arrays
    moved = sketches["weight/sketch"] != sketches["start/sketch"]
    assert moved.any(2).all().item() and len(moved) == 6


def test_a_wrapper_is_let_go_where_another_optimizer_is_recorded_in_its_place(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    first, second = Wrapper(pair(model), lambda _: [0, 1]), Wrapper(pair(model), lambda _: [0, 1])
    step = Wrapper.step
    with trainparity.record(model, first, tmp_path, interval=1) as recorder:  # type: ignore[arg-type]
        for wrapper in (first, second):
            recorder.go_on_with(wrapper)  # type: ignore[arg-type]
            model(torch.ones(2, 4)).sum().backward()
            wrapper.step()
    assert load(tmp_path).layout.made == 2 and Wrapper.step is step
    assert not any(one._optimizer_step_pre_hooks for one in (*first.held, *second.held))
