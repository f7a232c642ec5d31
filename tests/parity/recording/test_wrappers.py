"""The step of a wrapper is seen by its class: whatever the object is, and what becomes of it, nothing of it changes."""

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

import trainparity
from trainparity.parity.compare import load
from trainparity.parity.recording.wrappers import watch_step


def groups(optimizers: list[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    return [group for one in optimizers for group in one.param_groups]


class Both:
    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = list(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return groups(self.optimizers)

    def step(self) -> None:
        for one in self.optimizers:
            one.step()


class Chosen(Both):
    """Chooses its step when it is made, as one compiled."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        super().__init__(*optimizers)
        self.step = functools.partial(self.go, True)  # type: ignore[method-assign]

    def go(self, really: bool) -> None:
        assert really
        Both.step(self)


class Validated(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    one: torch.optim.Optimizer
    other: torch.optim.Optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return groups([self.one, self.other])

    def step(self) -> None:
        self.one.step()
        self.other.step()


class Constant(Both):
    def __setattr__(self, name: str, value: object) -> None:
        if name != "optimizers":
            raise TypeError(f"{name} is read only")
        super().__setattr__(name, value)


class Proxy:
    """Hands on to the first optimizer what is asked for and what is set."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.__dict__["held"] = list(optimizers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["held"][0], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.held[0], name, value)

    def step(self) -> None:
        for one in self.held:
            one.step()


def pair(model: nn.Linear) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD([model.weight], lr=0.1), torch.optim.SGD([model.bias], lr=0.1)]


def passed(model: nn.Module) -> None:
    model(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize(
    "make",
    [Both, Chosen, lambda one, other: Validated(one=one, other=other), Constant, Proxy],
    ids=["plain", "chosen", "pydantic", "constant", "proxy"],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_any_wrapper_is_recorded(make: Callable[..., Any], scaled: bool, tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    wrapper, scaler = make(*pair(model)), torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)
    with trainparity.record(model, wrapper, tmp_path, interval=1):
        for factor in (1.0, float("inf") if scaled else 1.0, 1.0):
            model.zero_grad()
            scaler.scale(factor * model(torch.ones(2, 4)).sum()).backward()
            scaler.step(wrapper)
            scaler.update()
    assert load(tmp_path).layout.steps == [0, 1, 2]


def test_a_loop_may_have_each_member_scaled_by_itself(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    wrapper, scaler = Both(*pair(model)), torch.amp.GradScaler("cpu", init_scale=4.0)
    with trainparity.record(model, wrapper, tmp_path, interval=1):
        for factor in (1.0, float("inf"), 1.0):
            model.zero_grad()
            scaler.scale(factor * model(torch.ones(2, 4)).sum()).backward()
            for one in wrapper.optimizers:
                scaler.step(one)
            scaler.update()
    assert load(tmp_path).layout.steps == [0, 1, 2]


def shallow(model: nn.Linear, wrapper: Both) -> tuple[nn.Linear, Both]:
    of_model, of_wrapper = copy.deepcopy(model), copy.copy(wrapper)
    of_wrapper.optimizers = pair(of_model)
    return of_model, of_wrapper


def deep(model: nn.Linear, wrapper: Both) -> tuple[nn.Linear, Both]:
    return copy.deepcopy((model, wrapper))


@pytest.mark.parametrize(("make", "copied"), [(Both, shallow), (Both, deep), (Chosen, deep)])
def test_a_copy_steps_for_itself(make: type[Both], copied: Callable[..., Any], tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    wrapper = make(*pair(model))
    with trainparity.record(model, wrapper, tmp_path, interval=1):
        passed(model)
        wrapper.step()
        of_model, of_wrapper = copied(model, wrapper)
        before = model.weight.detach().clone()
        passed(of_model)
        of_wrapper.step()
        assert torch.equal(model.weight, before) and not torch.equal(of_model.weight, before)
    assert load(tmp_path).layout.made == 1


class Inherits(Both):
    pass


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_classes_are_left_as_they_were(order: tuple[int, ...]) -> None:
    """In whichever order it ends of two wrappers of one class and one of a class that inherits the step."""
    wrappers, seen, before = [Both(), Both(), Inherits()], list[int](), Both.step

    def around(number: int) -> AbstractContextManager[None]:
        seen.append(number)
        return contextmanager(lambda: iter([None]))()

    ends = [watch_step(wrapper, functools.partial(around, number)) for number, wrapper in enumerate(wrappers)]
    for wrapper in (*wrappers, Both(), Inherits()):
        wrapper.step()
    assert seen == [0, 1, 2]
    for number in order:
        end = ends[number]
        assert end
        end()
        end()  # once more is no mistake
    for wrapper in wrappers:
        wrapper.step()
    assert seen == [0, 1, 2] and Both.step is before and "step" not in vars(Inherits)


def test_a_step_of_the_object_itself_is_watched_and_put_back() -> None:
    seen, chosen = list[str](), Chosen()
    step = chosen.step

    @contextmanager
    def around() -> Iterator[None]:
        seen.append("begins")
        yield
        seen.append("ends")

    end = watch_step(chosen, around)
    assert end
    chosen.step()
    copied, (make, given) = copy.deepcopy(chosen), chosen.step.__reduce__()
    assert isinstance(copied.step, functools.partial) and make(*given) is step  # as it is pickled
    copied.step()
    assert copied.step.func.__self__ is copied and seen == ["begins", "ends"]
    end()
    assert chosen.step is step


def test_a_scheduler_that_wraps_the_step_before_it_is_recorded_or_after_it_counts(tmp_path: Path) -> None:
    class Held(torch.optim.Optimizer):
        def __init__(self, held: list[torch.optim.Optimizer]) -> None:
            self.held, self.param_groups = held, groups(held)

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for one in self.held:
                one.step()

    model = nn.Linear(4, 4)
    held = Held(pair(model))
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(held, 0.5)]
    with trainparity.record(model, held, tmp_path, interval=1):
        schedulers.append(torch.optim.lr_scheduler.ExponentialLR(held, 0.5))
        for _ in range(3):
            passed(model)
            held.step()
            for scheduler in schedulers:
                scheduler.step()
    assert load(tmp_path).arrays["setting/lr"][:, 0].tolist() == [0.1, 0.025, 0.00625]


def test_what_has_no_step_is_left_alone() -> None:
    assert watch_step(object(), contextmanager(lambda: iter([None]))) is None
