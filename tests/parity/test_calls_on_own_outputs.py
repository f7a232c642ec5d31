"""A model that is called on what it has returned, as in a rollout or a solver: where a detach stands decides."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared

CALLS = 4


def train(
    folder: Path, twin: int, *, coarse: bool = False, detached: tuple[int, ...] = (), parts: int = 1,
    calls: int = CALLS, copied: bool = False,
) -> None:  # fmt: skip
    """Train a model for 6 steps whose loss is made of each of its calls, some of them behind a detach."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    optimizer, draws = torch.optim.Adam(model.parameters(), lr=3e-3), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            for state in torch.randn(16, 8, generator=draws).chunk(parts):
                wanted, made, loss = state, state, torch.zeros(())
                for call in range(calls):
                    wanted = wanted.roll(1, 1).tanh()
                    with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                        given = made.detach() if call in detached else made
                        made = model(given.clone() if copied else given)
                    made = made.float()
                    loss = loss + (made - wanted).square().mean()
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_another_cut_is_the_same_training(coarse: bool, tmp_path: Path) -> None:
    run = partial(train, coarse=coarse)
    assert compared(run, partial(run, parts=2), tmp_path).verdict == "equivalent"


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("detached", [(2,), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("added", [True, False], ids=["added", "lost"])
def test_a_detach_between_calls_is_named(coarse: bool, detached: tuple[int, ...], added: bool, tmp_path: Path) -> None:
    runs = [partial(train, coarse=coarse), partial(train, coarse=coarse, detached=detached)]
    found = compared(*runs[:: 1 if added else -1], tmp_path)
    assert (found.verdict, found.cause) == ("different", "backward"), found.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [1, 4])
def test_a_detached_tensor_that_one_run_copies_is_the_same(coarse: bool, parts: int, tmp_path: Path) -> None:
    """It lies elsewhere in memory then, and is a sample of its own."""
    run = partial(train, coarse=coarse, detached=(2,))
    found = compared(run, partial(run, copied=True, parts=parts), tmp_path)
    assert found.verdict in ("bitwise", "equivalent"), found.explanation


def test_fewer_calls_are_counted_with_the_first(tmp_path: Path) -> None:
    found = compared(train, partial(train, calls=CALLS - 1), tmp_path)
    assert found.verdict == "different"
    assert "calls the model 3 times in" in str(found.explanation) and "and 4 times in" in str(found.explanation)
