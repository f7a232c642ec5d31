"""Models that are given several crops of each image and put those of one size together, as DINO does."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softmax

import trainparity
from tests.support.against_twins import compared


class MultiCrop(nn.Module):
    """Passes crops of one size as one batch, view after view, and all of them through the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, 6)

    def forward(self, crops: list[Tensor]) -> Tensor:
        sizes = sorted({crop.shape[-1] for crop in crops}, reverse=True)
        made = [self.body(torch.cat([crop for crop in crops if crop.shape[-1] == size])) for size in sizes]
        head: Tensor = self.head(torch.cat(made))
        return head


def train(parts: int, temperature: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = MultiCrop()
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.5), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            crops = [torch.randn(16, 1, size, size, generator=draws) for size in (8, 8, 4, 4, 4)]
            for of_part in zip(*(crop.chunk(parts) for crop in crops), strict=True):
                views = model(list(of_part)).chunk(5)
                wanted = [softmax(view.detach() / temperature, -1) for view in views[:2]]
                pairs = [(w, view) for i, w in enumerate(wanted) for j, view in enumerate(views) if i != j]
                loss = sum((-w * log_softmax(view / 0.1, -1)).sum(-1).mean() for w, view in pairs) / len(pairs)
                (loss / parts).backward()  # type: ignore[union-attr]
            optimizer.step()


@pytest.mark.parametrize("parts", [2, 4])
def test_they_may_be_cut(parts: int, tmp_path: Path) -> None:
    assert compared(partial(train, 1, 0.04), partial(train, parts, 0.04), tmp_path).verdict == "equivalent"


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_another_loss_is_no_other_forward_pass(parts: int, tmp_path: Path) -> None:
    found = compared(partial(train, 1, 0.04), partial(train, parts, 0.07), tmp_path)
    assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation
