"""Gradients are read as the update is given them, whatever an optimizer makes of them while it steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict

STEPS, BATCH = 4, 8
X = torch.randn(STEPS, BATCH, 6, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 3, (STEPS, BATCH), generator=torch.Generator().manual_seed(2))
LIMIT = 0.05

Make = Callable[[Any], torch.optim.Optimizer]


class Cleared(torch.optim.AdamW):
    """Frees gradients when it is done with them, to save memory."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        self.zero_grad()


class Clipping(torch.optim.SGD):
    """Clips by itself."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        nn.utils.clip_grad_norm_(self.param_groups[0]["params"], LIMIT)
        super().step(closure)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def cleared(parameters: Any) -> torch.optim.Optimizer:
    return Cleared(parameters, lr=1e-3, eps=1e-15)  # a factor of the gradient moves weights by less than rounding


def nesterov(parameters: Any, *, foreach: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)


def train(
    folder: Path,
    make: Make,
    *,
    parts: int = 1,
    scale: float = 1.0,
    closure: bool = False,
    before: Callable[..., None] | None = None,
    younger: bool = False,
) -> Path:
    """Train; `before` is a hook on the step, which may be `younger` than the Recorder's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = make(model.parameters())
    if before and not younger:
        optimizer.register_step_pre_hook(before)
    with trainparity.record(model, optimizer, folder):
        if before and younger:
            optimizer.register_step_pre_hook(before)
        for data, target in zip(X, Y, strict=True):

            def evaluate(data: Tensor = data, target: Tensor = target) -> Tensor:
                optimizer.zero_grad()
                for part, wanted in zip(data.chunk(parts), target.chunk(parts), strict=True):
                    loss = nn.functional.cross_entropy(model(part), wanted) * scale / parts
                    loss.backward()
                return loss

            if closure:
                optimizer.step(evaluate)  # type: ignore[arg-type]
            else:
                evaluate()
                optimizer.step()
    return folder


def compared(folder: Path, left: Make, right: Make, **of_right: Any) -> Verdict:
    both = {"closure": of_right["closure"]} if "closure" in of_right else {}
    return compare_folders(train(folder / "a", left, **both), train(folder / "b", right, **of_right))


@pytest.mark.parametrize("closure", [False, True])
def test_an_optimizer_may_compute_in_the_gradients(closure: bool, tmp_path: Path) -> None:
    found = compared(
        tmp_path, lambda p: nesterov(p, foreach=False), lambda p: nesterov(p, foreach=True), closure=closure
    )
    assert found.verdict == "bitwise", found.explanation


def test_an_optimizer_may_free_the_gradients(tmp_path: Path) -> None:
    assert compared(tmp_path / "same", adamw, lambda p: Cleared(p, lr=1e-3)).verdict == "bitwise"
    assert compared(tmp_path / "cut", cleared, cleared, parts=4).verdict == "equivalent"
    found = compared(tmp_path / "fault", cleared, cleared, parts=4, scale=4.0)
    assert (found.verdict, found.cause) == ("different", "loss-normalisation"), found.explanation


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def clip(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], LIMIT)


def shrink(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad.mul_(LIMIT)


def test_a_younger_hook_of_the_loop_is_called_first(tmp_path: Path) -> None:
    older = train(tmp_path / "a", sgd, before=shrink)
    younger = train(tmp_path / "b", sgd, before=shrink, younger=True)
    assert compare_folders(older, younger).verdict == "bitwise"
    found = compare_folders(train(tmp_path / "c", sgd), younger)
    assert (found.verdict, found.cause) != ("different", "update"), found.explanation


def test_clipping_inside_of_the_step_is_clipping(tmp_path: Path) -> None:
    inside = train(tmp_path / "a", lambda p: Clipping(p, lr=0.1))
    assert compare_folders(train(tmp_path / "b", sgd, before=clip), inside).verdict == "bitwise"
    found = compare_folders(train(tmp_path / "c", sgd), inside)
    assert (found.verdict, found.cause) == ("different", "clipping"), found.explanation


def test_a_fused_optimizer_takes_the_loss_scale_away_in_its_step(tmp_path: Path) -> None:
    def train_scaled(folder: Path, *, fused: bool) -> Path:
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        with trainparity.record(model, optimizer, folder):
            for data, target in zip(X, Y, strict=True):
                optimizer.zero_grad()
                scaler.scale(nn.functional.cross_entropy(model(data), target)).backward()
                scaler.step(optimizer)
                scaler.update()
        return folder

    found = compare_folders(train_scaled(tmp_path / "a", fused=False), train_scaled(tmp_path / "b", fused=True))
    assert found.verdict in ("bitwise", "equivalent"), found.explanation


@pytest.mark.parametrize("zeroed_before", [1, 2, 3])
def test_gradients_that_are_zeroed_between_micro_batches_are_named(zeroed_before: int, tmp_path: Path) -> None:
    def train_parts(folder: Path, zeroed_before: int) -> Path:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        optimizer = sgd(model.parameters())
        with trainparity.record(model, optimizer, folder):
            for data, target in zip(X, Y, strict=True):
                for part, (rows, wanted) in enumerate(zip(data.chunk(4), target.chunk(4), strict=True)):
                    if part in (0, zeroed_before):
                        optimizer.zero_grad()
                    (nn.functional.cross_entropy(model(rows), wanted) / 4).backward()
                optimizer.step()
        return folder

    found = compare_folders(train_parts(tmp_path / "a", 0), train_parts(tmp_path / "b", zeroed_before))
    assert (found.verdict, found.cause) == ("different", "gradients-not-zeroed"), found.explanation
