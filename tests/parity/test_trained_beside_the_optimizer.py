"""Gradients of parameters that no optimizer holds, beside those that it holds."""

from functools import partial
from pathlib import Path

import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared

BODY, HEAD = 0, 2


def _train(frozen: int | None, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)  # the body has gradients, which nothing applies
    if frozen is not None:
        model[frozen].requires_grad_(False)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            optimizer.step()


def test_a_frozen_head_is_no_gradient_that_was_thrown_away(tmp_path: Path) -> None:
    verdict = compared(partial(_train, None), partial(_train, HEAD), tmp_path)
    assert verdict.cause == "frozen-parameter", verdict.explanation


def test_a_body_whose_gradients_nobody_zeroes_is_trained_as_a_frozen_one(tmp_path: Path) -> None:
    verdict = compared(partial(_train, BODY), partial(_train, None), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def _train_by_two(zeroes: bool, folder: Path, twin: int) -> None:
    """Train the head with the recorded optimizer, and the body with one that is not recorded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    recorded, other = (torch.optim.SGD(model[part].parameters(), lr=0.1) for part in (HEAD, BODY))
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, recorded, folder, twin=twin, interval=1):
        for _ in range(4):
            recorded.zero_grad()
            if zeroes:
                other.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            recorded.step()
            other.step()


def test_gradients_that_an_optimizer_beside_the_recorded_one_leaves_are_named(tmp_path: Path) -> None:
    verdict = compared(partial(_train_by_two, True), partial(_train_by_two, False), tmp_path)
    assert verdict.cause == "gradients-not-zeroed", verdict.explanation


def _distill(with_gradients: bool, folder: Path, twin: int) -> None:
    """Train a student beside a teacher that keeps the last gradient of its own training, which no step takes."""
    torch.manual_seed(0)
    student, teacher = nn.Linear(4, 3), nn.Linear(4, 3)
    teacher(torch.ones(2, 4)).sum().backward()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(nn.ModuleList([student, teacher]), optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            inputs = torch.randn(16, 4, generator=draws)
            with torch.set_grad_enabled(with_gradients):
                target = teacher(inputs)
            (student(inputs) - target).square().mean().backward()
            optimizer.step()


def test_gradients_of_a_teacher_that_nobody_zeroes_are_none_of_the_training(tmp_path: Path) -> None:
    verdict = compared(partial(_distill, False), partial(_distill, True), tmp_path)
    assert verdict.verdict in ("equivalent", "bitwise"), verdict.explanation
