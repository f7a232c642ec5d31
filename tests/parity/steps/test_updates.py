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
        self,
        parameters: Iterable[Tensor],
        steps: int = 5,
        scaled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        lr: float = 0.02,
    ) -> None:
        super().__init__([p for p in parameters if p.ndim == 2], {"lr": lr})
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


class Lion(torch.optim.Optimizer):
    """The sign of an average, with its constants in its code."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        kept: float = 0.99,
        lerp: bool = False,
        lr: float = 1e-4,
        keeps_weights: bool = False,
    ) -> None:
        super().__init__(parameters, {"lr": lr})
        self.kept, self.lerp, self.keeps_weights = kept, lerp, keeps_weights

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                mixed = torch.lerp(p.grad, average, 0.9) if self.lerp else 0.9 * average + 0.1 * p.grad
                p.sub_(mixed.sign(), alpha=group["lr"])
                average.mul_(self.kept).add_(p.grad, alpha=1 - self.kept)
                if self.keeps_weights:
                    self.state[p].setdefault("weights", p.clone()).lerp_(p, 0.01)


class Momentum(torch.optim.Optimizer):
    """Momentum, Nesterov's or not, of which weights near one take nothing in bf16 where a step is too small."""

    def __init__(self, parameters: Iterable[Tensor], nesterov: bool = True, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})
        self.nesterov = nesterov

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p].setdefault("kept", torch.zeros_like(p))
                kept.mul_(0.95).add_(p.grad)
                p.sub_(p.grad.add(kept, alpha=0.95) if self.nesterov else kept, alpha=group["lr"])


Make = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def train(
    make: Make, folder: Path, twin: int, stored: torch.dtype = torch.float32, steps: int = 4, parts: int = 1
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 5)).to(stored)
    optimizer, draws = make(model.parameters()), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(steps):
            model.zero_grad()
            inputs = torch.randn(16, 8, generator=draws).to(stored)
            for some, labels in zip(inputs.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(some)
                loss: Tensor = cross_entropy(outputs.float(), labels) / parts
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
    assert verdict.reason
    within = verdict.distance_over_floor <= verdict.margin
    assert verdict.reason.startswith("different from step" if within else "beyond"), verdict.reason
    assert ("what is trained lies within" in verdict.reason) == within, verdict.reason


def judged_in_bf16(reference: Make, other: Make, folder: Path, parts: int = 1) -> Verdict:
    """Compare trainings with weights in bf16, which an update rounds to, over 12 steps."""
    runs = (partial(train, reference), partial(train, other, parts=parts))
    return compared(*(partial(run, stored=torch.bfloat16, steps=12) for run in runs), folder)


RIGHT_IN_BF16: dict[str, tuple[Make, Make, int]] = {
    "Lion, accumulated": (Lion, Lion, 4),
    "Lion that averages its weights, accumulated": (Lion, partial(Lion, keeps_weights=True), 4),
    "Lion in another form": (Lion, partial(Lion, lerp=True), 1),
    "Muon, accumulated": (Orthogonal, Orthogonal, 4),
    "AdamW, fused": (ADAMW, partial(torch.optim.AdamW, lr=0.01, fused=True), 1),
    "RMSprop, parameters together": (
        partial(torch.optim.RMSprop, foreach=False), partial(torch.optim.RMSprop, foreach=True), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT_IN_BF16)
def test_weights_in_bf16_are_the_same_training_in_another_form(name: str, tmp_path: Path) -> None:
    reference, other, parts = RIGHT_IN_BF16[name]
    verdict = judged_in_bf16(reference, other, tmp_path, parts)
    assert verdict.verdict in ("bitwise", "equivalent"), (verdict.cause, verdict.explanation)


WRONG_IN_BF16: dict[str, tuple[Make, Make, str]] = {
    "another average": (Lion, partial(Lion, kept=0.98), "optimizer-state"),
    "an iteration less": (partial(Orthogonal, lr=0.1), partial(Orthogonal, lr=0.1, steps=4), "update"),
    "without Nesterov's step": (partial(Momentum, lr=0.05), partial(Momentum, lr=0.05, nesterov=False), "update"),
}


@pytest.mark.parametrize("name", WRONG_IN_BF16)
def test_an_optimizers_fault_is_named_where_weights_in_bf16_hide_its_updates(name: str, tmp_path: Path) -> None:
    reference, other, cause = WRONG_IN_BF16[name]
    verdict = judged_in_bf16(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation


def test_decay_by_hand_that_leaves_equal_bits_is_the_same_training(tmp_path: Path) -> None:
    def train(by_hand: bool, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = nn.Linear(4, 10)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0 if by_hand else 0.1)
        draws = torch.Generator().manual_seed(1)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for _ in range(4):
                optimizer.zero_grad()
                cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
                if by_hand:
                    with torch.no_grad():
                        torch._foreach_mul_(list(model.parameters()), 1 - 1e-3 * 0.1)
                optimizer.step()

    verdict = compared(partial(train, False), partial(train, True), tmp_path)
    assert (verdict.verdict, verdict.distance_over_floor) == ("bitwise", 0), verdict.explanation
