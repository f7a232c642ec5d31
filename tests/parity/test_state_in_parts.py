"""Optimizers that keep a part of a parameter's state by itself, as those whose ranks share the rows of large ones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trainparity
from trainparity.parity.compare import compare_folders


class Momentum(torch.optim.Optimizer):
    """SGD with momentum, which it keeps whole, or of the first weight in so many parts of its rows."""

    def __init__(self, parameters: Any, parts: int) -> None:
        super().__init__(parameters, {"lr": 0.05})
        self._parts = parts

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for parameter in (each for group in self.param_groups for each in group["params"]):
            state = self.state[parameter]
            pieces: list[Tensor] = list(parameter.grad.chunk(self._parts if parameter.shape == (16, 8) else 1))
            moved = []
            for number, piece in enumerate(pieces):
                key = f"momentum.{number}"
                state[key] = piece.clone() if key not in state else state[key].mul_(0.9).add_(piece)
                moved.append(state[key])
            parameter.sub_(torch.cat(moved), alpha=0.05)


def train(folder: Path, *, parts: int = 1, micro: int = 1, lost: bool = False, twin: int = 0) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = Momentum(model.parameters(), parts)
    data = torch.randn(8, 16, 8)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for step, batch in enumerate(data):
            optimizer.zero_grad()
            if lost and step == 5:
                optimizer.state.pop(model[0].weight)
            for part in batch.chunk(micro):
                (model(part).square().mean() / micro).backward()
            optimizer.step()


@pytest.mark.parametrize("micro", [1, 2])
def test_that_is_no_state_that_was_lost(tmp_path: Path, micro: int) -> None:
    for twin in range(3):
        train(tmp_path / "a", twin=twin)
    train(tmp_path / "b", parts=2, micro=micro)
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict in ("bitwise", "equivalent")


def test_one_that_was_lost_is(tmp_path: Path) -> None:
    for twin in range(3):
        train(tmp_path / "a", twin=twin)
    train(tmp_path / "b", lost=True)
    found = compare_folders(tmp_path / "a", tmp_path / "b")
    assert (found.verdict, found.cause, found.step) == ("different", "optimizer-state", 5)
    assert "keeps nothing of 0.weight" in (found.explanation or "")
