"""Under bf16, of the same weights and inputs another function is seen that another implementation's rounding is not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.support.against_twins import compared, train
from trainparity.records.verdict import Verdict

Function = Callable[[Tensor], Tensor]


class Calls(nn.Module):
    """Calls a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, values: Tensor) -> Tensor:
        return self.function(values)


def normalised(values: Tensor) -> Tensor:
    return nn.functional.layer_norm(values, values.shape[-1:]).bfloat16()


def normalised_by_hand(values: Tensor) -> Tensor:
    centred = values - values.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)


def gelu_by_hand(values: Tensor) -> Tensor:
    return values * 0.5 * (1 + torch.erf(values / 2**0.5))


def gelu_by_a_sigmoid(values: Tensor) -> Tensor:
    return values * torch.sigmoid(1.702 * values)


def attended(values: Tensor) -> Tensor:
    heads = values.view(len(values), 4, 8)
    return scaled_dot_product_attention(heads, heads, heads).flatten(1)


def attended_by_hand(values: Tensor) -> Tensor:
    heads = values.view(len(values), 4, 8)
    return ((heads @ heads.mT * 8**-0.5).softmax(-1).to(heads.dtype) @ heads).flatten(1)


def leaky(values: Tensor) -> Tensor:
    return nn.functional.leaky_relu(values, 0.01)


def make(function: Function) -> nn.Module:
    """Make a network of which one module calls a function."""
    before = nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32)
    return nn.Sequential(*before, Calls(function), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))


def judged(reference: Function, other: Function, folder: Path) -> Verdict:
    def loss(outputs: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.float(), torch.arange(16) % 10)

    return compared(*(partial(train, partial(make, f), loss, True) for f in (reference, other)), folder)


RIGHT = {
    "normalisation": (normalised, normalised_by_hand),
    "GELU": (nn.functional.gelu, gelu_by_hand),
    "attention": (attended, attended_by_hand),
}


@pytest.mark.parametrize("name", RIGHT)
def test_another_implementation_is_the_same_training(name: str, tmp_path: Path) -> None:
    verdict = judged(*RIGHT[name], tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


WRONG = {"slope": (torch.relu, leaky), "GELU": (nn.functional.gelu, gelu_by_a_sigmoid)}


@pytest.mark.parametrize("name", WRONG)
def test_another_function_is_the_forward_pass(name: str, tmp_path: Path) -> None:
    verdict = judged(*WRONG[name], tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict
    assert "the output of 3 (Calls) differs" in str(verdict.explanation)
