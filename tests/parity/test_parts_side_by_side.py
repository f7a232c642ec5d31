"""Parts that the loop calls one after the other with the same samples: the loss is made of what all of them return."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared

ACTIONS = torch.arange(16) % 4


def train(order: str, weights: dict[str, float], parts: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"policy": nn.Linear(8, 4), "value": nn.Linear(8, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            states = torch.randn(16, 8, generator=draws).chunk(parts)
            for some, chosen in zip(states, ACTIONS.chunk(parts), strict=True):
                made = {name: model[name](some) for name in order.split()}
                loss = weights.get("policy", 1.0) * nn.functional.cross_entropy(made["policy"], chosen)
                loss = loss + weights.get("value", 1.0) * made["value"].square().mean()
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("order", ["policy value", "value policy"])
@pytest.mark.parametrize("term", ["policy", "value"])
def test_the_term_that_differs_is_seen_where_its_part_returns(order: str, term: str, tmp_path: Path) -> None:
    verdict = compared(partial(train, order, {}, 1), partial(train, order, {term: 1.5}, 1), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
    assert "lies inside" not in str(verdict.explanation) and verdict.evidence["outputs"] == [term]


@pytest.mark.parametrize("order", ["policy value", "value policy"])
def test_accumulation_is_the_same_training(order: str, tmp_path: Path) -> None:
    assert compared(partial(train, order, {}, 1), partial(train, order, {}, 4), tmp_path).verdict == "equivalent"


def test_the_weight_of_a_term_is_told(tmp_path: Path) -> None:
    halved = partial(train, "policy value", {"value": 0.5}, 4)
    verdict = compared(partial(train, "policy value", {}, 1), halved, tmp_path)
    assert verdict.cause == "loss-or-targets" and verdict.evidence["outputs"] == ["value"], verdict.explanation
    assert "the gradient of the loss by value is 0.5 times in" in str(verdict.explanation)
    assert "that by policy agrees" in str(verdict.explanation)
