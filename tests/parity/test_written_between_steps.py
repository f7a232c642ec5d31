"""Weights that both loops write into between steps, as where they cut them off at a limit."""

from functools import partial
from pathlib import Path

import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared


def train(odd: int | None, folder: Path, twin: int) -> None:
    """Train 6 steps; after each other one, or after none, make the weights shorter by a thousandth."""
    torch.manual_seed(0)
    model = nn.Linear(4, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(16, 4, generator=draws)).square().mean().backward()
            optimizer.step()
            if step % 2 == odd:
                with torch.no_grad():
                    model.weight.mul_(0.999)


def test_in_which_step_a_loop_cuts_is_no_exact_fact_where_both_do(tmp_path: Path) -> None:
    """Rounding may bring one run to the limit a step before the other."""
    verdict = compared(partial(train, 0), partial(train, 1), tmp_path)
    assert verdict.verdict == "different"
    assert "in the other run none does so" not in (verdict.explanation or "")


def test_that_one_loop_alone_cuts_is_one(tmp_path: Path) -> None:
    verdict = compared(partial(train, None), partial(train, 1), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "weights-not-loaded", 2)
    assert "in the other run none does so" in (verdict.explanation or "")
