"""Gradients as backward passes hand them over."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.against_twins import Training, compared, train
from trainparity.parity.recording.backward import BackwardHooks
from trainparity.parity.recording.backward_passes import MAX_MICRO_BATCHES


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


def _of_heads(count: int) -> Training:
    """Return a training whose loss takes so many of the heads."""
    return partial(train, TwoHeads, lambda outputs: sum(output.square().mean() for output in outputs[:count]), False)


def test_a_head_that_the_loss_leaves_out_gets_none_as_gradient(tmp_path: Path) -> None:
    same = compared(_of_heads(1), _of_heads(1), tmp_path / "same")
    assert same.verdict == "bitwise", same.reason
    other = compared(_of_heads(2), _of_heads(1), tmp_path / "other")
    assert other.cause in ("frozen-parameter", "loss-or-targets"), other.explanation


@pytest.mark.parametrize("count", [3, MAX_MICRO_BATCHES + 6])
def test_only_what_is_gone_was_thrown_away(count: int) -> None:
    model = nn.Linear(4, 3)
    hooks = BackwardHooks(model, set, lambda captured: None)
    hooks.active = True
    for _ in range(count):
        model(torch.ones(2, 4)).sum().backward()
    assert not hooks.passes.thrown_away
    hooks.begin()
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    assert len(hooks.passes.thrown_away) == 1 and hooks.count == 2
