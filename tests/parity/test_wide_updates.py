"""Optimizers that turn rounding into other updates, as those that decompose the gradient do, prove nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict


class Jumping(torch.optim.Optimizer):
    """Its update depends on the last digits of the gradient, as the eigenvectors of nearly equal values do."""

    def __init__(self, parameters: Any, lr: float, wave: float = 1e3) -> None:
        self.wave = wave
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                angle = self.wave * parameter.grad / parameter.grad.norm()
                parameter.add_(angle.sin(), alpha=-group["lr"])


def _train(folder: Path, make: Any, *, parts: int = 1, twin: int = 0) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    with trainparity.record(model, optimizer := make(model.parameters()), folder, twin=twin):
        for batch in torch.randn(4, 16, 8):
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    output = model(part)
                (output.float().square().sum() / len(batch)).backward()
            optimizer.step()


def _judged(folder: Path, make: Any, other: Any = None, **keywords: Any) -> Verdict:
    for twin in range(3):
        _train(folder / "a", make, twin=twin)
    _train(folder / "b", other or make, **keywords)
    return compare_folders(folder / "a", folder / "b")


def test_accumulation_under_such_an_optimizer_is_not_called_another_training(tmp_path: Path) -> None:
    found = _judged(tmp_path, lambda parameters: Jumping(parameters, lr=1e-2), parts=4)
    assert found.verdict == "cannot judge"
    assert found.reason is not None and "the updates of" in found.reason and "too wide" in found.reason
    assert found.hidden_by_floor and "float64" in (found.advice or "")


def test_another_update_that_its_noise_hides_is_not_called_the_same(tmp_path: Path) -> None:
    found = _judged(
        tmp_path, lambda parameters: Jumping(parameters, lr=1e-2), lambda parameters: Jumping(parameters, 1e-2, 1.1e3)
    )
    assert found.verdict == "cannot judge", found.explanation


def test_what_is_recorded_as_a_fact_is_a_difference_there_too(tmp_path: Path) -> None:
    found = _judged(
        tmp_path, lambda parameters: Jumping(parameters, lr=1e-2), lambda parameters: Jumping(parameters, lr=2e-2)
    )
    assert (found.verdict, found.cause) == ("different", "learning-rate")


@pytest.mark.parametrize("rate", [1e-2, 1e-6])
def test_plain_optimizers_in_bf16_are_judged(tmp_path: Path, rate: float) -> None:
    found = _judged(tmp_path, lambda parameters: torch.optim.AdamW(parameters, lr=rate), parts=4)
    assert found.verdict == "equivalent", (found.reason, found.explanation)


def _train_a_bias_of_many_rows(folder: Path, parts: int, twin: int = 0) -> None:
    """Train, under bf16, a last layer whose bias has a gradient of 2,048 rows: the same bits in all twins."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    draws, shift = torch.Generator().manual_seed(0), torch.tensor([3.0, -2.0, 1.0])
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(8):
            images, targets = torch.randn(8, 256, 16, generator=draws), torch.randn(8, 256, 3, generator=draws) + shift
            optimizer.zero_grad()
            for some, wanted in zip(images.chunk(parts), targets.chunk(parts), strict=True):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    output = model(some)
                (nn.functional.mse_loss(output.float(), wanted, reduction="sum") / targets.numel()).backward()
            optimizer.step()


@pytest.mark.parametrize("parts", [2, 4])
def test_a_bias_that_rounds_alike_in_all_twins_may_round_otherwise_in_another_cut(parts: int, tmp_path: Path) -> None:
    for twin in range(4):
        _train_a_bias_of_many_rows(tmp_path / "a", 1, twin)
    _train_a_bias_of_many_rows(tmp_path / "b", parts)
    verdict = compare_folders(tmp_path / "a", tmp_path / "b")
    assert verdict.verdict == "equivalent", verdict.explanation
