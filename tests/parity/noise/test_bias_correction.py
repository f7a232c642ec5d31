"""Adam's bias corrections in single precision are no other training; what is more than their rounding is."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import LABELS, compared
from trainparity.records.verdict import Verdict

Correction = Callable[[float, Tensor], float]


def in_single(beta: float, steps: Tensor) -> float:
    return float(1 - torch.tensor(beta) ** steps)


def in_double(beta: float, steps: Tensor) -> float:
    return 1 - beta ** float(steps)


class Adam(torch.optim.Adam):
    """Adam with corrections made as one says: torch makes them in float32 where steps are counted on the GPU."""

    def __init__(
        self,
        model: nn.Module,
        correction: Correction,
        *,
        lr: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        longer: float = 0.0,
        decay: float = 0.0,
        resumed: int = 0,
        first_betas: tuple[float, float] | None = None,
    ) -> None:
        """`longer` are the updates of all layers but the first one, which has made `resumed` steps already."""
        first, *rest = model.parameters()
        groups = [{"params": [first], "betas": first_betas or betas}, {"params": rest}]
        super().__init__(groups, lr=lr, betas=betas)
        self._correction, self._longer, self._decay = correction, longer, decay
        if resumed:
            moments = {"exp_avg": torch.zeros_like(first), "exp_avg_sq": torch.ones_like(first)}
            self.state[first].update(step=torch.tensor(float(resumed)), **moments)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group, longer in zip(self.param_groups, (0.0, self._longer), strict=True):
            self._step(group, longer)

    def _step(self, group: dict[str, Any], longer: float) -> None:
        for parameter in group["params"]:
            state = self.state[parameter]
            if not state:
                empty = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                state.update(step=torch.zeros(()), **empty)
            state["step"] += 1
            state["exp_avg"].lerp_(parameter.grad, 1 - group["betas"][0])
            state["exp_avg_sq"].mul_(group["betas"][1]).addcmul_(
                parameter.grad, parameter.grad, value=1 - group["betas"][1]
            )
            first, second = (self._correction(beta, state["step"]) for beta in group["betas"])
            root = (state["exp_avg_sq"] / second).sqrt() + group["eps"]
            rate = group["lr"] * (1 + longer)
            parameter.mul_(1 - self._decay).addcdiv_(state["exp_avg"], root, value=-rate / first)


def train(
    make: Callable[[nn.Module], torch.optim.Optimizer],
    folder: Path,
    twin: int,
    *,
    steps: int = 12,
    dtype: torch.dtype = torch.float32,
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    optimizer, draws = make(model), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws).to(dtype)), LABELS).backward()
            optimizer.step()


def judged(tmp_path: Path, steps: int = 12, **options: Any) -> Verdict:
    """Judge corrections in single precision against those in double."""
    runs = (
        partial(train, partial(Adam, correction=correction, **options), steps=steps)
        for correction in (in_double, in_single)
    )
    return compared(*runs, tmp_path)


def test_corrections_in_single_precision_are_the_same_training_as_torchs(tmp_path: Path) -> None:
    reference = partial(train, lambda model: torch.optim.Adam(model.parameters(), lr=0.01))
    verdict = compared(reference, partial(train, partial(Adam, correction=in_single)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="each-tensor-shows-it"),
        pytest.param({"lr": 0.001, "steps": 40}, id="weights-alone-show-it"),
        pytest.param({"betas": (0.0, 0.999)}, id="one-beta-is-zero"),
        pytest.param({"betas": (0.9, 0.9999)}, id="a-beta-nearer-to-one"),
        pytest.param({"resumed": 20_000}, id="layers-that-join-late"),
    ],
)
def test_corrections_in_single_precision_are_the_same_training(options: dict[str, Any], tmp_path: Path) -> None:
    verdict = judged(tmp_path, **options)
    assert verdict.verdict == "equivalent", verdict.explanation
    assert verdict.distance_over_floor is not None and verdict.distance_over_floor < 6


def hardly_longer(model: nn.Module) -> torch.optim.Optimizer:
    """Torch's own Adam, whose updates are longer by what single precision may make of its corrections."""
    optimizer, parameters = torch.optim.Adam(model.parameters(), lr=0.01), list(model.parameters())
    before: list[Tensor] = []
    optimizer.register_step_pre_hook(lambda *_: before.extend(p.detach().clone() for p in parameters))

    def longer(*_: Any) -> None:
        with torch.no_grad():
            for parameter, start in zip(parameters, before, strict=True):
                parameter += 1e-5 * (parameter - start)
        before.clear()

    optimizer.register_step_post_hook(longer)
    return optimizer


def test_nothing_is_excused_where_both_runs_surely_correct_in_double_precision(tmp_path: Path) -> None:
    own = partial(train, lambda model: torch.optim.Adam(model.double().parameters(), lr=0.01), dtype=torch.float64)
    longer = partial(train, lambda model: hardly_longer(model.double()), dtype=torch.float64)
    assert compared(own, longer, tmp_path).verdict == "different"


def train_by_radam(in_single: bool, folder: Path, twin: int) -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.RAdam(model.parameters(), lr=0.01)
        if in_single:
            own = optimizer.step

            def step() -> None:  # torch then computes with the tensor that counts steps, as on a GPU
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(torch.compiler, "is_compiling", lambda: True)
                    own()

            optimizer.step = step  # type: ignore[method-assign, assignment]
        return optimizer

    train(make, folder, twin)


def test_what_radam_takes_from_the_variance_in_single_precision_is_the_same_training(tmp_path: Path) -> None:
    verdict = compared(*(partial(train_by_radam, single) for single in (False, True)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"longer": 0.005}, id="another-rate"),
        pytest.param({"longer": 2e-4}, id="hardly-another-rate"),
        pytest.param({"longer": 5e-4, "first_betas": (0.9, 0.99999)}, id="hardly-another-rate-beside-a-far-beta"),
        pytest.param({"decay": 1e-5}, id="decay"),
        pytest.param({"correction": lambda beta, steps: 1.0}, id="none"),
        pytest.param({"correction": lambda beta, steps: in_double(beta, steps + 1)}, id="one-step-late"),
    ],
)
def test_more_than_their_rounding_is_another_training(wrong: dict[str, object], tmp_path: Path) -> None:
    betas = {"first_betas": wrong.get("first_betas")}
    other = partial(Adam, **{"correction": in_single, **wrong})  # type: ignore[arg-type]
    reference = partial(train, partial(Adam, correction=in_double, **betas))  # type: ignore[arg-type]
    verdict = compared(reference, partial(train, other), tmp_path)
    assert verdict.verdict == "different"


class Turned(torch.autograd.Function):
    """Returns what it is given, and a gradient times what it is told."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return given.view_as(given)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.factor * gradient, None


class Kink(nn.Module):
    """A ReLU that turns where one weight comes to a place; or a fault that begins at a step."""

    def __init__(self, layer: nn.Linear, place: int, at: float, longer: tuple[int, float]) -> None:
        """`longer` are the first step and the factor of a fault."""
        super().__init__()
        self._weight, self._place, self._at = [layer.weight], place, at
        self._made, self._longer = 0, longer

    def forward(self, given: Tensor) -> Tensor:
        turned = float(self._weight[0].detach().flatten()[self._place]) > self._at
        first, factor = self._longer
        self._made += 1
        found: Tensor = Turned.apply(given, factor if self._made > first else 1.05 if turned else 1.0)
        return found


def train_to_a_kink(
    correction: Correction,
    folder: Path,
    twin: int,
    *,
    kink: tuple[int, float] = (0, 1e9),
    longer: tuple[int, float] = (1000, 1.0),
    steps: int = 16,
    **windows: Any,
) -> Tensor:
    """Train, and return the first layer's weights in the end."""
    torch.manual_seed(0)
    first = nn.Linear(4, 32)
    model = nn.Sequential(first, Kink(first, *kink, longer), nn.Tanh(), nn.Linear(32, 10))
    optimizer, draws = Adam(model, correction), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1, **windows):
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
            optimizer.step()
    return first.weight.detach().flatten()


def test_a_kink_that_the_factor_alone_comes_to_is_not_judged(tmp_path: Path) -> None:
    runs = [partial(train_to_a_kink, correction) for correction in (in_double, in_single)]
    ends = [run(tmp_path / f"smooth/{number}", 0, steps=15) for number, run in enumerate(runs)]
    place = int((ends[0] - ends[1]).abs().argmax())
    kink = place, float(ends[0][place] + ends[1][place]) / 2
    verdict = compared(*(partial(run, kink=kink) for run in runs), tmp_path)
    assert verdict.verdict == "cannot judge" and "one factor" in (verdict.reason or ""), verdict.explanation
    assert "every=" in (verdict.advice or "")
    beyond = partial(train_to_a_kink, in_double, kink=kink), partial(train_to_a_kink, in_double, kink=(place, -1e9))
    other = compared(*beyond, tmp_path / "other")
    assert other.verdict == "different"


@pytest.mark.parametrize("factor", [0.2, 0.5])
def test_a_fault_that_begins_later_is_no_kink_where_much_of_the_gradient_is_lost(factor: float, tmp_path: Path) -> None:
    reference, other = partial(train_to_a_kink, in_double), partial(train_to_a_kink, in_single, longer=(6, factor))
    verdict = compared(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation


def test_a_smaller_one_is_seen_where_a_window_begins(tmp_path: Path) -> None:
    """It was not judged in windows either, though the advice was to make some."""
    small = {"longer": (6, 1.05)}
    assert (
        compared(
            partial(train_to_a_kink, in_double), partial(train_to_a_kink, in_single, **small), tmp_path / "whole"
        ).verdict
        == "cannot judge"
    )
    reference = partial(train_to_a_kink, in_double, every=4)
    other = partial(train_to_a_kink, in_single, every=4, follow=tmp_path / "windows/reference", **small)
    verdict = compared(reference, other, tmp_path / "windows")
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation
    assert "from step 8 on" in (verdict.reason or "")
