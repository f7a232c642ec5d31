"""A loss of two terms, made of one forward pass or of one for each: the same samples, twice as often."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


def _train(apart: bool, weight: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            images = torch.randn(16, 4, generator=draws)
            with torch.autocast("cpu", torch.bfloat16):
                first = model(images)
                second = model(images) if apart else first
            (cross_entropy(first.float(), LABELS) + weight * second.float().square().mean()).backward()
            optimizer.step()


@pytest.mark.parametrize("swapped", [False, True])
def test_a_pass_for_each_term_is_the_same_training(swapped: bool, tmp_path: Path) -> None:
    runs = [partial(_train, apart, 0.1) for apart in (swapped, not swapped)]
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def test_another_weight_of_a_term_is_seen_beside_it(tmp_path: Path) -> None:
    verdict = compared(partial(_train, False, 0.1), partial(_train, True, 1.0), tmp_path)
    assert verdict.verdict == "different"
