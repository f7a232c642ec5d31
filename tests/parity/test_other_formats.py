"""Which format a run computes in: that of its training, and another one is another precision, whichever comes first."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared, train_in_parts
from trainparity.parity.recording.trace import Trace


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train(coarse: bool, folder: Path, twin: int) -> None:
    train_in_parts(1, coarse, folder, twin, optimizer=adam, scale=1.0, before_update=lambda model: None)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_either_run_may_be_the_finer_one(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, coarse), partial(train, not coarse), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "precision"), verdict.explanation


def test_an_evaluation_outside_of_autocast_does_not_tell_the_format(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer = adam(model)
    with trainparity.record(model, optimizer, tmp_path):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.ones(8, 4)).float().square().mean()
        loss.backward()
        optimizer.step()
        model.eval()
        model(torch.ones(8, 4))
    assert Trace.load(tmp_path).layout.precision == "bf16"
