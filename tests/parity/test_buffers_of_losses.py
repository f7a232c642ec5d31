"""Buffers of the whole model that its loss is made with, as DINO's centre (Caron et al., 2021)."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.against_twins import compared, train


class Centred(nn.Module):
    centre: Tensor

    def __init__(self, momentum: float) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
        self.momentum = momentum
        self.register_buffer("centre", torch.zeros(1, 10))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        outputs: Tensor = self.net(samples)
        with torch.no_grad():
            found = outputs.float()
            targets = ((found - self.centre) / 0.5).softmax(1)
            self.centre.lerp_(found.mean(0, keepdim=True), 1 - self.momentum)
        return outputs, targets


def loss(made: tuple[Tensor, Tensor]) -> Tensor:
    outputs, targets = made
    return -(targets * outputs.float().log_softmax(1)).sum(1).mean()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_a_centre_that_moves_otherwise_is_named(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(*(partial(train, partial(Centred, kept), loss, coarse) for kept in (0.9, 0.99)), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "buffers-only", 0), verdict.explanation
    assert "centre at step 0" in (verdict.explanation or "")
