"""A model that is recorded by itself in one run and inside of another module in the other."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


class MakesItsLoss(nn.Module):
    """A model that computes the loss of another one, as trainers' modules do."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.criterion, self.model = nn.CrossEntropyLoss(label_smoothing=smoothing), model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return self.criterion(self.model(images), labels)  # type: ignore[no-any-return]


def _train(inside: bool, smoothing: float, evaluates: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 10))
    model[1].train(not evaluates)
    whole: Any = MakesItsLoss(model, smoothing) if inside else model
    model[1].train(not evaluates)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(whole, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            images = torch.randn(16, 4, generator=draws)
            loss = whole(images, LABELS) if inside else cross_entropy(model(images), LABELS, label_smoothing=smoothing)
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("inside", [False, True])
def test_a_model_is_the_same_inside_of_another(inside: bool, tmp_path: Path) -> None:
    verdict = compared(partial(_train, inside, 0.1, False), partial(_train, not inside, 0.1, False), tmp_path)
    assert verdict.verdict == "bitwise", verdict.reason


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("smoothing", "evaluates", "cause"), [(0.2, False, "loss-or-targets"), (0.1, True, "eval-mode")]
)
def test_faults_are_named_there(inside: bool, smoothing: float, evaluates: bool, cause: str, tmp_path: Path) -> None:
    reference, other = partial(_train, inside, 0.1, False), partial(_train, not inside, smoothing, evaluates)
    verdict = compared(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation
