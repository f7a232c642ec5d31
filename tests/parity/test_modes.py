"""Modes and rates of modules, in whichever pass of a step they are others."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import LABELS, compared, train
from trainparity.parity.compare import compare_folders


def train_in_two(second_evaluates: bool, folder: Path, twin: int) -> None:
    """Train in two micro-batches a step, of which the second may be in evaluation mode: a new epoch begins there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            samples = torch.randn(16, 4, generator=draws)
            for place, (some, labels) in enumerate(zip(samples.chunk(2), LABELS.chunk(2), strict=True)):
                model.train(not (place and second_evaluates))
                nn.functional.cross_entropy(model(some), labels).div(2).backward()
            optimizer.step()


def test_evaluation_mode_in_a_later_pass_of_a_step_is_named(tmp_path: Path) -> None:
    verdict = compared(partial(train_in_two, False), partial(train_in_two, True), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "eval-mode"), verdict.explanation


def dropping(rate: float) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(rate), nn.Linear(16, 10))


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_another_rate_of_dropout_draws_the_same_numbers(coarse: bool, tmp_path: Path) -> None:
    def loss(outputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs.float(), LABELS)

    verdict = compared(*(partial(train, partial(dropping, rate), loss, coarse) for rate in (0.1, 0.2)), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation
    assert "2 drops 0.1 in" in (verdict.explanation or "")


@pytest.mark.parametrize("alone", [0, 1])
def test_random_numbers_of_one_run_alone_are_said_to_be_that(alone: int, tmp_path: Path) -> None:
    rates = (0.1, 0.0) if alone == 0 else (0.0, 0.1)
    loss = partial(nn.functional.cross_entropy, target=LABELS)
    verdict = compared(*(partial(train, partial(dropping, rate), loss, False) for rate in rates), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "randomness"), verdict.explanation
    run = ("reference", "test")[alone]
    assert f"draws random numbers in {tmp_path / run} alone" in (verdict.explanation or ""), verdict.explanation


def train_by_batches(evaluates: bool, parts: int, folder: Path, twin: int) -> None:
    """Train with a BatchNorm that keeps no statistics: it takes each batch's in evaluation, too."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(16, track_running_stats=False).train(not evaluates)
    model = nn.Sequential(nn.Linear(4, 16), norm, nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            for some, labels in zip(torch.randn(16, 4, generator=draws).chunk(parts), LABELS.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(some), labels) / parts).backward()
            optimizer.step()


def test_the_mode_of_a_norm_without_statistics_is_none(tmp_path: Path) -> None:
    in_evaluation = partial(train_by_batches, True)
    found = compared(partial(train_by_batches, False, 1), partial(in_evaluation, 1), tmp_path / "same")
    assert found.verdict == "bitwise", found.explanation
    found = compared(partial(in_evaluation, 1), partial(in_evaluation, 2), tmp_path / "cut")
    assert (found.verdict, found.cause) == ("different", "batchnorm-statistics"), found.explanation


class Adapted(nn.Module):
    """A frozen layer with an adapter of rank 2, which evaluation adds to its weight, as LoRA's layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8), requires_grad=False)
        self.down, self.up = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 2) * 0.1)
        self.merged = False

    def train(self, mode: bool = True) -> "Adapted":
        if self.merged == mode:
            self.weight.data += (self.up @ self.down).detach() * (-1 if mode else 1)
            self.merged = not mode
        return super().train(mode)

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.weight if self.merged else self.weight + self.up @ self.down
        return nn.functional.linear(inputs, weight)


def _train_adapters(evaluates: bool, back: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Adapted(), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(8):
            if evaluates and step == 4:
                model.eval()
                model.train(back)
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()


def test_adapters_that_stay_merged_after_an_evaluation_are_in_its_mode(tmp_path: Path) -> None:
    found = compared(partial(_train_adapters, False, False), partial(_train_adapters, True, False), tmp_path)
    assert (found.cause, found.step) == ("eval-mode", 4), found.explanation
    _train_adapters(True, True, tmp_path / "back", 0)
    assert compare_folders(tmp_path / "reference", tmp_path / "back").verdict == "equivalent"


class DroppingItsPath(nn.Module):
    """A block whose own code reads its mode, as timm's `DropPath` does: no module of PyTorch's knows of that."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(32), nn.Linear(32, 128), nn.Linear(128, 32)
        self.scale = nn.Parameter(0.1 * torch.ones(32))

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        made = self.scale * self.outer(nn.functional.gelu(self.inner(self.norm(x))))
        return x + (made * (kept[:, None] > 0.2) / 0.8 if self.training else made)


class OfPaths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.norm, self.head = (
            nn.Linear(20, 32),
            DroppingItsPath(),
            nn.LayerNorm(32),
            nn.Linear(32, 5),
        )

    def forward(self, x: Tensor, kept: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(self.block(self.stem(x), kept)))
        return scores


def train_paths(coarse: bool, evaluates: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model, draws = OfPaths(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(8):
            model.train(not (evaluates and step >= 4))
            optimizer.zero_grad()
            given, kept = torch.randn(16, 20, generator=draws), torch.rand(16, generator=draws)
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                loss = nn.functional.cross_entropy(model(given, kept), LABELS % 5)
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_mode_that_a_modules_own_code_reads_is_named_where_a_coarse_format_hides_its_outputs(
    coarse: bool, tmp_path: Path
) -> None:
    verdict = compared(*(partial(train_paths, coarse, evaluates) for evaluates in (False, True)), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "eval-mode"), verdict.explanation
