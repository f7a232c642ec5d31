"""Under bf16 an update is judged at the optimizer's own precision where what goes into its step agrees."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict

LABELS = torch.arange(16) % 5


class Decayed(torch.optim.Optimizer):
    """Momentum with its constants in its code, as people write it."""

    def __init__(self, parameters: Iterable[Tensor], decay: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self.decay, self.momentum = decay, momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p].setdefault("kept", torch.zeros_like(p))
                kept.mul_(self.momentum).add_(p.grad)
                p.mul_(1 - group["lr"] * self.decay).sub_(kept, alpha=group["lr"])


class Signed(torch.optim.Optimizer):
    """Lion without memory: the update is the sign of the gradient, beside a decay."""

    def __init__(self, parameters: Iterable[Tensor], decay: float = 0.1) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self.decay = decay

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] * self.decay).sub_(p.grad.sign(), alpha=group["lr"])


class Orthogonal(torch.optim.Optimizer):
    """Muon: matrices move by the gradient with all singular values near one, by Newton and Schulz's iteration."""

    def __init__(
        self, parameters: Iterable[Tensor], steps: int = 5, scaled: bool = True, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        super().__init__([p for p in parameters if p.ndim == 2], {"lr": 0.02})
        self.steps, self.scaled, self.dtype = steps, scaled, dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5 if self.scaled else 1.0
                p.sub_(self._orthogonal(p.grad), alpha=group["lr"] * scale)

    def _orthogonal(self, gradient: Tensor) -> Tensor:
        if gradient.shape[0] > gradient.shape[1]:
            return self._orthogonal(gradient.T).T
        found: Tensor = gradient.to(self.dtype) / gradient.norm().to(self.dtype)
        for _ in range(self.steps):
            square = found @ found.T
            found = 3.4445 * found + (-4.775 * square + 2.0315 * square @ square) @ found
        return found.to(gradient.dtype)


Make = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def train(make: Make, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 5))
    optimizer, draws = make(model.parameters()), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                outputs = model(torch.randn(16, 8, generator=draws))
            loss: Tensor = cross_entropy(outputs.float(), LABELS)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def judged(reference: Make, other: Make, folder: Path) -> Verdict:
    return compared(partial(train, reference), partial(train, other), folder)


ADAMW: Make = partial(torch.optim.AdamW, lr=0.01, foreach=False)
SGD: Make = partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=False)
RIGHT: dict[str, tuple[Make, Make]] = {
    "AdamW, parameters together": (ADAMW, partial(torch.optim.AdamW, lr=0.01, foreach=True)),
    "AdamW, fused": (ADAMW, partial(torch.optim.AdamW, lr=0.01, fused=True)),
    "SGD, parameters together": (SGD, partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True)),
    "SGD, fused": (SGD, partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True)),
    "Muon in single precision": (Orthogonal, partial(Orthogonal, dtype=torch.float32)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_another_form_of_an_optimizer_is_the_same_training(name: str, tmp_path: Path) -> None:
    verdict = judged(*RIGHT[name], tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


WRONG: dict[str, tuple[Make, Make, int]] = {
    "no decay": (Decayed, partial(Decayed, decay=0.0), 0),
    "another momentum": (Decayed, partial(Decayed, momentum=0.89), 1),
    "no decay beside a sign": (Signed, partial(Signed, decay=0.0), 0),
    "Muon's iteration is cut short": (Orthogonal, partial(Orthogonal, steps=4), 0),
    "Muon's scale is left out": (Orthogonal, partial(Orthogonal, scaled=False), 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_update_of_the_same_gradients_is_seen(name: str, tmp_path: Path) -> None:
    reference, other, step = WRONG[name]
    verdict = judged(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "update", step), verdict.explanation
