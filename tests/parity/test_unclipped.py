"""Clipping by code of the loop's own, beside a run that clips with PyTorch's function."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared

Clip = Callable[[nn.Module], object]
LABELS = torch.arange(16) % 10


def train(clip: Clip, parts: int, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            for images, labels in zip(
                torch.randn(16, 4, generator=draws).chunk(parts), LABELS.chunk(parts), strict=True
            ):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(images)
                (nn.functional.cross_entropy(outputs.float(), labels) / parts).backward()
            clip(model)
            optimizer.step()


def by_function(limit: float, model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), limit)


def by_hand(limit: float, model: nn.Module) -> None:
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for gradient in gradients:
        gradient.mul_(min(1.0, limit / (float(norm) + 1e-6)))


FUNCTION, HAND, NONE = partial(by_function, 0.3), partial(by_hand, 0.3), partial(by_function, 1e9)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("reference", "other"), [(FUNCTION, HAND), (HAND, FUNCTION)], ids=["function", "hand"])
def test_one_limit_is_one_training_whoever_clips(
    reference: Clip, other: Clip, parts: int, coarse: bool, tmp_path: Path
) -> None:
    verdict = compared(partial(train, reference, 1, coarse), partial(train, other, parts, coarse), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("reference", "other"), [(FUNCTION, partial(by_hand, 0.33)), (HAND, NONE), (HAND, partial(by_function, 0.33))]
)
def test_another_limit_is_another_training(reference: Clip, other: Clip, coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, reference, 1, coarse), partial(train, other, 1, coarse), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation
    assert "1 of them is applied" not in str(verdict.explanation) or other is NONE
