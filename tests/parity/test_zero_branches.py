"""Branches that begin at zero: what they make of their input is no part of the output yet, and of their gradient."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, silu

import trainparity
from tests.support.against_twins import LABELS, compared

Function = Callable[[Tensor], Tensor]


class Gated(nn.Module):
    """A residual branch behind a learned number (ReZero, Bachlechner et al., 2020)."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.into, self.branch, self.out = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 10)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.into(samples)
        return self.out(hidden + self.gate * self.function(self.branch(hidden)))  # type: ignore[no-any-return]


class Normed(Gated):
    """Behind a normalisation whose scale is zero, as of torchvision's `zero_init_residual`."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        del self.gate
        self.norm = nn.LayerNorm(16)
        nn.init.zeros_(self.norm.weight)

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.into(samples)
        return self.out(hidden + self.norm(self.function(self.branch(hidden))))  # type: ignore[no-any-return]


class Modulated(Gated):
    """Behind a layer that begins at zero, weights and bias (adaLN-zero, Peebles and Xie, 2022)."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        del self.gate
        self.modulation = nn.Linear(4, 16)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.into(samples)
        branch = self.function(self.branch(hidden))
        return self.out(hidden + self.modulation(samples) * branch)  # type: ignore[no-any-return]


def train(make: Callable[[Function], nn.Module], function: Function, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = make(function)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
            optimizer.step()


@pytest.mark.parametrize("make", [Gated, Normed, Modulated])
def test_another_function_in_it_is_named_there(make: Callable[[Function], nn.Module], tmp_path: Path) -> None:
    verdict = compared(partial(train, make, gelu), partial(train, make, silu), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "forward", 0), verdict.explanation


def hooked(function: Function) -> nn.Module:
    """A model whose zero bias gets another gradient: that is nothing that its forward pass makes."""
    model = Gated(function)
    nn.init.zeros_(model.out.bias)
    model.out.bias.register_hook(lambda gradient: gradient * torch.arange(10))
    return model


def zero_bias(function: Function) -> nn.Module:
    model = Gated(function)
    nn.init.zeros_(model.out.bias)
    return model


def test_a_bias_of_zero_hides_nothing(tmp_path: Path) -> None:
    verdict = compared(partial(train, zero_bias, gelu), partial(train, hooked, gelu), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation
