"""Samples that are given as several views, and as windows of tokens of which one is number 0."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared


class Views(nn.Module):
    """Takes a list of views of the samples, as self-distillation does (Caron et al., arXiv 2104.14294)."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.together = together
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, views: list[Tensor]) -> Tensor:
        batches = [torch.cat(views)] if self.together else views
        return torch.cat([self.head(self.body(batch).tanh()) for batch in batches])


def train_on_views(count: int, together: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model, draws = Views(together), torch.Generator().manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            views = [torch.randn(8, 6, generator=draws) for _ in range(4)]
            model(views[:count]).square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("ours", "theirs"), [(4, 2), (2, 3)])
def test_views_that_one_run_leaves_out_are_other_inputs(ours: int, theirs: int, together: bool, tmp_path: Path) -> None:
    found = compared(partial(train_on_views, ours, together), partial(train_on_views, theirs, together), tmp_path)
    assert (found.verdict, found.cause) == ("different", "inputs"), found.explanation
    assert "another view, is given in" in (found.explanation or "")


def train_on_tokens(later: int, folder: Path, twin: int) -> None:
    """Train on windows of a text that begin so many tokens later, from the second step on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    text = torch.randint(7, (2000,), generator=torch.Generator().manual_seed(3))
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(5):
            optimizer.zero_grad()
            first = 200 * step + (later if step else 0)
            length = 13 if step < 4 else 9  # the end of an epoch
            windows = torch.stack([text[first + 20 * row : first + 20 * row + length] for row in range(8)])
            outputs = model(windows[:, :-1])
            nn.functional.cross_entropy(outputs.flatten(0, 1), windows[:, 1:].flatten()).backward()
            optimizer.step()


def test_windows_that_begin_a_token_later_are_other_samples(tmp_path: Path) -> None:
    """Those that end with token 0 were taken for padded ones."""
    found = compared(partial(train_on_tokens, 0), partial(train_on_tokens, 1), tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "samples", 1), found.explanation
