"""Loops that move the weights within a step, to ask for the gradient elsewhere, as SAM does."""

from functools import partial
from pathlib import Path

import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders

LABELS = torch.arange(16) % 4


def train(parts: int, moved_back: bool, folder: Path, twin: int, *, reach: float = 0.05, divided: bool = True) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            batch = torch.randn(16, 8, generator=draws)
            evaluate(model, batch, parts, divided)
            before = [parameter.detach().clone() for parameter in model.parameters()]
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.add_(reach * parameter.grad)
            evaluate(model, batch, parts, divided)
            if moved_back:
                with torch.no_grad():
                    for parameter, value in zip(model.parameters(), before, strict=True):
                        parameter.copy_(value)
            optimizer.step()


def evaluate(model: nn.Module, batch: torch.Tensor, parts: int, divided: bool) -> None:
    model.zero_grad()
    for samples, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
        (nn.functional.cross_entropy(model(samples), labels) / (parts if divided else 1)).backward()


def test_weights_that_are_not_moved_back_are_said_to_be(tmp_path: Path) -> None:
    verdict = compared(partial(train, 1, True), partial(train, 1, False), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "weights-not-loaded"), verdict.explanation
    assert "that the loop has moved, and then update 4 of 4 parameters from other values" in str(verdict.explanation)


def test_accumulation_in_both_evaluations_is_the_same_training(tmp_path: Path) -> None:
    assert compared(partial(train, 1, True), partial(train, 4, True), tmp_path).verdict == "equivalent"


def test_losses_that_are_not_divided_are_named_though_both_evaluations_make_the_same(tmp_path: Path) -> None:
    """As ASAM's do in its first step, where a last layer of zeros lets no weight move."""
    reference, wrong = (partial(train, parts, True, reach=0.0, divided=False) for parts in (1, 2))
    verdict = compared(reference, wrong, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation"), verdict.explanation


def test_without_twins_nobody_knows_how_far_rounding_carries_it(tmp_path: Path) -> None:
    """A fault that is named by what it is, and by no distance, is one all the same."""
    for name, parts, divided in (("a", 1, True), ("right", 4, True), ("wrong", 4, False)):
        train(parts, True, tmp_path / name, 0, reach=1e3, divided=divided)
    right, wrong = (compare_folders(tmp_path / "a", tmp_path / name) for name in ("right", "wrong"))
    assert right.verdict == "cannot judge" and "without twins nobody knows" in (right.reason or ""), right
    assert (wrong.verdict, wrong.cause) == ("different", "loss-or-targets"), wrong.explanation
