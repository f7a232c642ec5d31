"""Models that return a parameter, as an image that is optimised itself: its hooks would stay there."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pixels = nn.Parameter(torch.rand(1, 3, 8, 8))

    def forward(self) -> Tensor:
        return self.pixels


def _train(kind: str, weight: float, folder: Path, twin: int) -> None:
    """Bring an image near to another one, and its channels' products near to given ones (Gatys et al., 2016)."""
    torch.manual_seed(0)
    model = Image()
    optimizer = {"Adam": torch.optim.Adam, "LBFGS": torch.optim.LBFGS}[kind](model.parameters(), lr=0.05)
    content, style = torch.rand(1, 3, 8, 8), torch.rand(3, 3)

    def loss() -> Tensor:
        optimizer.zero_grad()
        image = model()
        assert twin or image is model.pixels  # a twin moves what modules return
        products = image.flatten(2)[0] @ image.flatten(2)[0].T / 64
        found: Tensor = (image - content).square().mean() + weight * (products - style).square().mean()
        found.backward()
        return found

    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.step(loss)
    assert not model.pixels._backward_hooks


@pytest.mark.parametrize("kind", ["Adam", "LBFGS"])
def test_another_weight_of_a_term_is_the_losss(kind: str, tmp_path: Path) -> None:
    verdict = compared(partial(_train, kind, 1.0), partial(_train, kind, 2.0), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
