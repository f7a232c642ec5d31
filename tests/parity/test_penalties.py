"""Terms of the loss that hold weights near those that a run begins with."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import LABELS, compared


def train(weight: float, parts: int, folder: Path, twin: int) -> None:
    """Train with half the squared distance from the first weights in the loss (L2-SP, Li et al., 2018)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    first = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            samples = torch.randn(16, 4, generator=draws)
            for some, labels in zip(samples.chunk(parts), LABELS.chunk(parts), strict=True):
                loss = nn.functional.cross_entropy(model(some), labels)
                for now, before in zip(model.parameters(), first.parameters(), strict=True):
                    loss = loss + weight / 2 * (now - before).square().sum()
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("weight", [0.0, 2.0])
@pytest.mark.parametrize("parts", [1, 4])
def test_another_weight_of_the_distance_from_the_first_weights_is_one_of_the_loss(
    parts: int, weight: float, tmp_path: Path
) -> None:
    verdict = compared(partial(train, 1.0, 1), partial(train, weight, parts), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "loss-or-targets", 1), verdict.explanation
    assert "what the weights have moved by" in (verdict.explanation or "")


def test_the_same_weight_is_the_same_training(tmp_path: Path) -> None:
    assert compared(partial(train, 1.0, 1), partial(train, 1.0, 4), tmp_path).verdict == "equivalent"
