"""Samples that all have other values in one run, under bf16, whose gradients hide a few percent of them."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared

STEPS, FEATURES = 8, 64


class Classifier(nn.Module):
    """A classifier that may prepare its images itself."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 10))
        self.scale = scale

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layers(images * self.scale)
        return outputs


def train(given: float, inside: float, parts: int, folder: Path, twin: int) -> None:
    """Train with images that are multiplied where they are made, and inside of the model."""
    torch.manual_seed(0)
    model = Classifier(inside)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    centres = torch.randn(10, FEATURES)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(STEPS):
            labels = torch.randint(0, 10, (64,))
            images = given * (centres[labels] + torch.randn(64, FEATURES))
            optimizer.zero_grad()
            for some, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = nn.functional.cross_entropy(model(some), wanted) / parts
                loss.backward()
            optimizer.step()


@pytest.mark.parametrize("parts", [1, 4])
def test_images_of_another_brightness_are_told_by_the_loss(parts: int, tmp_path: Path) -> None:
    found = compared(partial(train, 1.0, 1.0, 1), partial(train, 1.03, 1.0, parts), tmp_path)
    assert (found.verdict, found.cause) == ("different", "inputs"), found.explanation


@pytest.mark.parametrize("parts", [1, 4])
def test_a_model_that_prepares_its_images_itself_trains_the_same(parts: int, tmp_path: Path) -> None:
    found = compared(partial(train, 1.0, 0.3, 1), partial(train, 0.3, 1.0, parts), tmp_path)
    assert found.verdict in ("bitwise", "equivalent"), found.explanation
