"""Branches that begin at zero: what they make of their input is no part of the output yet, and of their gradient."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, silu

from tests.support.against_twins import LABELS, compared, train

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


def loss(outputs: Tensor) -> Tensor:
    return cross_entropy(outputs, LABELS)


@pytest.mark.parametrize("make", [Gated, Normed, Modulated])
def test_another_function_in_it_is_named_there(make: Callable[[Function], nn.Module], tmp_path: Path) -> None:
    verdict = compared(*(partial(train, partial(make, one), loss, False) for one in (gelu, silu)), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "forward", 0), verdict.explanation


class Projected(Gated):
    """Behind a projection of zeros, as the residual branches of nanochat."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        del self.gate
        self.projection = nn.Linear(16, 16, bias=False)
        nn.init.zeros_(self.projection.weight)

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.into(samples)
        return self.out(hidden + self.projection(self.function(self.branch(hidden))))  # type: ignore[no-any-return]


def mildly(factor: float, given: Tensor) -> Tensor:
    return gelu(given) + factor * given.abs()


@pytest.mark.parametrize("factor", [0.05, 1.0])
def test_in_bf16_it_is_named_though_the_floor_may_hide_it(factor: float, tmp_path: Path) -> None:
    """All else has the same bits there."""
    functions = gelu, partial(mildly, factor)
    verdict = compared(*(partial(train, partial(Projected, one), loss, True) for one in functions), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "forward", 0), verdict.explanation


def hooked(function: Function) -> nn.Module:
    """A model whose zero bias gets another gradient: that is nothing that its forward pass makes."""
    model = zero_bias(function)
    model.out.bias.register_hook(lambda gradient: gradient * torch.arange(10))
    return model


def zero_bias(function: Function) -> Gated:
    model = Gated(function)
    nn.init.zeros_(model.out.bias)
    return model


def test_a_bias_of_zero_hides_nothing(tmp_path: Path) -> None:
    verdict = compared(*(partial(train, partial(make, gelu), loss, False) for make in (zero_bias, hooked)), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation
