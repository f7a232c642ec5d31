"""A term of a loss whose weight grows from nearly nothing: its gradients part as little as at kinks, in every step."""

from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared

STEPS, LABELLED = 5, 8


def student() -> nn.Module:
    first = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU()
    second = nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def train(weight: float, folder: Path, twin: int) -> None:
    """Train with the consistency loss of Mean Teacher (Tarvainen and Valpola, 2017), as much as its weight ramps up."""
    torch.manual_seed(0)
    model = student()
    teacher = deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(STEPS):
            images, labels = torch.randn(16, 3, 12, 12), torch.randint(0, 10, (LABELLED,))
            outputs = model(images + 0.1 * torch.randn(images.shape))
            apart = outputs.softmax(1) - teacher(images + 0.1 * torch.randn(images.shape)).softmax(1)
            ramp = 10 * torch.tensor(-5 * (1 - step / 10) ** 2).exp()
            supervised = nn.functional.cross_entropy(outputs[:LABELLED], labels)
            optimizer.zero_grad()
            (supervised + weight * ramp * apart.square().mean()).backward()
            optimizer.step()
            for average, trained in zip(teacher.parameters(), model.parameters(), strict=True):
                average.lerp_(trained.detach(), max(1 / (step + 1), 0.1))


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_a_term_that_grows_from_nearly_nothing_is_no_kink(weight: float, tmp_path: Path) -> None:
    found = compared(partial(train, 1.0), partial(train, weight), tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "loss-or-targets", 1), found.explanation
