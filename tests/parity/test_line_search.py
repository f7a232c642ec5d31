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


class Searching(torch.optim.Optimizer):
    """Doubles its step for each further evaluation, of which it makes one or two by the loss's last digit."""

    def __init__(self, parameters: Any, lr: float, odd: int) -> None:
        """Make an optimizer; `odd` makes the last digit another one."""
        self.odd = odd
        super().__init__(parameters, {"lr": lr})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is not None
        evaluations = 1 + (int(closure() * 2**20) + self.odd) % 2
        for _ in range(evaluations):
            closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(parameter.grad, alpha=group["lr"] * 2**evaluations)


def _train(folder: Path, *, odd: int = 0, lr: float = 0.01, limit: float | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    optimizer = Searching(model.parameters(), lr, odd)
    with trainparity.record(model, optimizer, folder):
        for batch in torch.randn(3, 16, 8):

            def closure(batch: torch.Tensor = batch) -> float:
                optimizer.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                if limit:
                    nn.utils.clip_grad_norm_(model.parameters(), limit)
                return loss.item()

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
