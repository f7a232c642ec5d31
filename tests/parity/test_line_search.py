"""Optimizers that evaluate the loss as often as its last digits ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict


class Searching(torch.optim.SGD):
    """Doubles its step for each further evaluation, of which it makes one or two by the loss's last digit."""

    odd: int
    """What makes the last digit another one."""

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        assert closure is not None
        digit = int(closure() * 2**20) + self.odd
        for _ in range(1 + digit % 2):
            closure()
            for group in self.param_groups:
                group["lr"] *= 2
        super().step()
        for group in self.param_groups:
            group["lr"] = group["initial"]


def _train(folder: Path, *, odd: int = 0, lr: float = 0.01, limit: float | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer = Searching(model.parameters(), lr)
    optimizer.odd = odd
    for group in optimizer.param_groups:
        group["initial"] = lr
    with trainparity.record(model, optimizer, folder):
        for batch in torch.randn(3, 16, 8):

            def closure(batch: torch.Tensor = batch) -> float:
                optimizer.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                if limit:
                    nn.utils.clip_grad_norm_(model.parameters(), limit)
                return float(loss)

            optimizer.step(closure)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Verdict]:
    """Compare such a training with another one."""
    _train(tmp_path / "a")

    def judge(**keywords: Any) -> Verdict:
        _train(tmp_path / "b", **keywords)
        return compare_folders(tmp_path / "a", tmp_path / "b", names=("A", "B"))

    return judge


def test_evaluations_that_rounding_may_decide_prove_nothing(judged: Callable[..., Verdict]) -> None:
    found = judged(odd=1)
    assert found.verdict == "cannot judge", found
    assert "evaluates the loss" in (found.reason or "") and "given the same gradient" in (found.reason or "")


@pytest.mark.parametrize(
    ("keywords", "cause"), [({"lr": 0.02, "odd": 1}, "learning-rate"), ({"limit": 0.1, "odd": 1}, "clipping")]
)
def test_a_fault_beside_them_is_a_difference(
    keywords: dict[str, Any], cause: str, judged: Callable[..., Verdict]
) -> None:
    found = judged(**keywords)
    assert (found.verdict, found.cause) == ("different", cause), found
