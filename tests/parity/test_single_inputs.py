"""Steps whose gradients are a few numbers of one size, as of one word: their sketches say little of them."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import trainparity
from tests.support.against_twins import compared


def train(bias: bool, rate: float, folder: Path, twin: int) -> None:
    """Tell two classes of single words of 128, word by word: one class's gradient is the other's negative."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 2, bias=bias))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    words = one_hot(torch.randperm(128), 128).float()
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step, word in enumerate(words):
            optimizer.zero_grad()
            cross_entropy(model(word[None]), torch.tensor([step % 2])).backward()
            optimizer.step()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rate", "expected"), [(0.1, "bitwise"), (0.2, "different")])
def test_no_such_trace_is_called_damaged(rate: float, expected: str, bias: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, bias, 0.1), partial(train, bias, rate), tmp_path)
    assert verdict.verdict == expected, verdict.reason
    assert verdict.cause in (None, "learning-rate")
