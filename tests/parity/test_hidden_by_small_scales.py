"""What a module makes is scaled down behind it, as by ConvNeXt's layer scale: outputs agree, and gradients don't."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.against_twins import compared, train_towards_one


class Block(nn.Module):
    def __init__(self, eps: float, drops: float) -> None:
        super().__init__()
        self.norm, self.inner, self.drop = nn.LayerNorm(16, eps=eps), nn.Linear(16, 16), nn.Dropout(drops)
        self.gamma = nn.Parameter(torch.full((16,), 1e-7))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.gamma * self.drop(torch.tanh(self.inner(self.norm(x))))
        return made


class Detaches(Block):
    """A fault of backward alone."""

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.gamma * torch.tanh(self.inner(self.norm(x.detach())).detach())
        return made


class Logs(Block):
    """Draws a number for a log, with which nothing is made; half of the gradient may be lost."""

    def __init__(self, eps: float, drops: float) -> None:
        super().__init__(eps, drops)
        self.drop = nn.Identity()  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(2)
        made = torch.tanh(self.inner(self.norm(x)))
        return x + self.gamma * self.lost(made)

    def lost(self, made: Tensor) -> Tensor:
        return made


class LogsAndLoses(Logs):
    def lost(self, made: Tensor) -> Tensor:
        return 0.5 * made + 0.5 * made.detach()


def train(
    folder: Path, twin: int, *, eps: float = 1e-6, drops: float = 0.0, parts: int = 1, kind: type[Block] = Block
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), kind(eps, drops), kind(eps, drops), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    train_towards_one(model, optimizer, 0.1 * torch.randn(5, 16, 8), folder, twin, parts=parts)


@pytest.mark.parametrize(
    ("reference", "variant", "cause"),
    [
        ({}, {"parts": 4}, None),
        ({}, {"eps": 1e-3}, "forward"),
        ({"drops": 0.2}, {"drops": 0.3}, "forward"),
        ({"drops": 0.2}, {"drops": 0.2, "parts": 4}, "randomness"),
        ({}, {"kind": Detaches}, "frozen-parameter"),
        ({"kind": Logs}, {"kind": Logs, "parts": 4}, None),
        ({"kind": Logs}, {"kind": LogsAndLoses, "parts": 4}, "backward"),
    ],
)
def test_the_cause_is_where_it_is_made(
    reference: dict[str, float], variant: dict[str, float], cause: str | None, tmp_path: Path
) -> None:
    verdict = compared(partial(train, **reference), partial(train, **variant), tmp_path)  # type: ignore[arg-type]
    assert verdict.cause == cause, verdict.explanation
    assert (verdict.verdict == "different") == (cause is not None)
