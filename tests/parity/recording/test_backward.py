"""Gradients as backward passes hand them over."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared


class HandsOn(torch.autograd.Function):
    """Copies two tensors; of one that the loss leaves out no gradient comes back, not even zeros, as DDP does it."""

    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return one.clone(), other.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return gradients


class TwoHeads(nn.Module):
    """A model with a head beside the one that the loss is made of, sometimes."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.beside = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, data: Tensor) -> Any:
        return HandsOn.apply(self.main(data), self.beside(data))  # type: ignore[no-untyped-call]


def _train(heads: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            outputs = model(torch.randn(16, 4, generator=draws))
            sum(output.square().mean() for output in outputs[:heads]).backward()
            optimizer.step()


def test_a_head_that_the_loss_leaves_out_gets_none_as_gradient(tmp_path: Path) -> None:
    same = compared(partial(_train, 1), partial(_train, 1), tmp_path / "same")
    assert same.verdict == "bitwise", same.reason
    other = compared(partial(_train, 2), partial(_train, 1), tmp_path / "other")
    assert other.cause in ("frozen-parameter", "loss-or-targets"), other.explanation
