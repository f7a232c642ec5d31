"""Gradients that a loop changes between backward and the update row by row, as adaptive clipping does."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import LABELS, classifier, compared


def clip_rows(parameters: list[nn.Parameter], at_most: float) -> None:
    """Shorten each row of a gradient to a part of the row of weights (Brock et al., arXiv 2102.06171)."""
    for parameter in parameters:
        assert parameter.grad is not None
        weights, given = (rows.reshape(len(rows), -1).norm(dim=1) for rows in (parameter.detach(), parameter.grad))
        kept: Tensor = (at_most * weights.clamp(min=1e-3) / given.clamp(min=1e-6)).clamp(max=1.0)
        parameter.grad *= kept.view(-1, *[1] * (parameter.ndim - 1))


def train(head: bool, parts: int, each: bool, folder: Path, twin: int) -> None:
    """Clip rows of all parameters, or all but the head's; after each of so many parts of a batch, or after the last."""
    torch.manual_seed(0)
    model = classifier()
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(1)
    clipped = list(model.parameters())[: None if head else -2]
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.randn(16, 4, generator=draws)
            for inputs, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(inputs), labels) / parts).backward()
                if each:
                    clip_rows(clipped, 0.01)
            clip_rows(clipped, 0.01)
            optimizer.step()


REFERENCE = partial(train, False, 1, False)


def test_they_may_be_cut(tmp_path: Path) -> None:
    assert compared(REFERENCE, partial(train, False, 2, False), tmp_path).verdict == "equivalent"


@pytest.mark.parametrize("wrong", [partial(train, True, 1, False), partial(train, False, 2, True)])
def test_another_way_to_change_them_is_named(wrong: partial[None], tmp_path: Path) -> None:
    found = compared(REFERENCE, wrong, tmp_path)
    assert (found.verdict, found.cause) == ("different", "clipping"), found.explanation
    assert "no multiple of their sum, in both runs" in (found.explanation or "")


def decayed(decay: float, folder: Path, twin: int) -> None:
    """Add the weights' decay to the gradients by hand."""
    torch.manual_seed(0)
    model = classifier()
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad.add_(parameter.detach(), alpha=decay)
            optimizer.step()


@pytest.mark.parametrize("other", [0.02, 0.0])
def test_decay_that_both_add_is_no_clipping(other: float, tmp_path: Path) -> None:
    found = compared(partial(decayed, 0.01), partial(decayed, other), tmp_path)
    assert (found.verdict, found.cause == "backward") == ("different", other == 0.0)
    assert found.cause in ("backward", "unknown")
