"""Gradients that a loop shortens to a part of their own running mean length, or divides by what it counts."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared


def train(kind: str, by: float, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mean = 0.0
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(6):
            batch, count = torch.randn(16, 8), 5 + 3 * step % 7
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                made = model(batch)
            (made.float() - 1).square().mean().backward()
            norm = float(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
            mean = 0.9 * mean + 0.1 * norm if mean else norm
            factor = {"limit": by * mean / norm, "smooth": 1 / (1 + by * norm), "count": 1 / (by * count)}[kind]
            for parameter in model.parameters():
                parameter.grad *= factor
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "cause"),
    [
        ("limit", 0.5, 0.4, "clipping"),
        ("smooth", 1.0, 1.5, "clipping"),
        ("count", 1, 2, "loss-normalisation"),
        ("count", 59.1, 29.55, "loss-normalisation"),
    ],
)
def test_which_of_them_is_another_one_is_told(
    kind: str, ours: float, theirs: float, cause: str, coarse: bool, tmp_path: Path
) -> None:
    found = compared(partial(train, kind, ours, coarse), partial(train, kind, theirs, coarse), tmp_path)
    assert (found.verdict, found.cause) == ("different", cause), found.explanation
