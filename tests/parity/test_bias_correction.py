"""Adam's bias corrections in single precision are no other training; what is more than their rounding is."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import LABELS, compared

Correction = Callable[[float, Tensor], float]


def in_single(beta: float, steps: Tensor) -> float:
    return float(1 - torch.tensor(beta) ** steps)


def in_double(beta: float, steps: Tensor) -> float:
    return 1 - beta ** float(steps)


class Adam(torch.optim.Adam):
    """Adam with corrections made as one says: torch makes them in float32 where steps are counted on the GPU."""

    def __init__(self, model: nn.Module, correction: Correction, *, longer: float = 0.0, decay: float = 0.0) -> None:
        super().__init__(model.parameters(), lr=0.01)
        self._correction, self._lr, self._decay = correction, 0.01 * (1 + longer), decay

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
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
            parameter.mul_(1 - self._decay).addcdiv_(state["exp_avg"], root, value=-self._lr / first)


def train(make: Callable[[nn.Module], torch.optim.Optimizer], folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    optimizer, draws = make(model), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(12):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
            optimizer.step()


REFERENCE = partial(train, partial(Adam, correction=in_double))


@pytest.mark.parametrize("reference", [REFERENCE, partial(train, lambda m: torch.optim.Adam(m.parameters(), lr=0.01))])
def test_corrections_in_single_precision_are_the_same_training(reference: partial[None], tmp_path: Path) -> None:
    verdict = compared(reference, partial(train, partial(Adam, correction=in_single)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
    assert verdict.distance_over_floor is not None and verdict.distance_over_floor < 6


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"longer": 0.005}, id="another-rate"),
        pytest.param({"decay": 1e-5}, id="decay"),
        pytest.param({"correction": lambda beta, steps: 1.0}, id="none"),
        pytest.param({"correction": lambda beta, steps: in_double(beta, steps + 1)}, id="one-step-late"),
    ],
)
def test_more_than_their_rounding_is_another_training(wrong: dict[str, object], tmp_path: Path) -> None:
    other = partial(Adam, **{"correction": in_single, **wrong})  # type: ignore[arg-type]
    verdict = compared(REFERENCE, partial(train, other), tmp_path)
    assert verdict.verdict == "different"
