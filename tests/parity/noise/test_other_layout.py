"""Channels last: other kernels, whose long means round to one side, and numbers that change sides of their kinks."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders

CHANNELS, STEPS = 32, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS)
        self.detached = 0

    def forward(self, given: Tensor) -> Tensor:
        made = relu(self.norm(self.first(given)))
        if self.detached:
            made = torch.cat([made[:, : self.detached].detach(), made[:, self.detached :]], 1)
        return relu(given + self.last(self.second(made)))


def train(
    seed: int, last: bool, detached: int, folder: Path, twin: int, *, adam: bool = False, later: float = 1
) -> None:
    torch.manual_seed(seed)
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 10)
    model = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), Block(), Block(), *ends)
    model[1].detached = detached  # type: ignore[assignment]
    if last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    optimizer = (partial(torch.optim.AdamW, lr=1e-3) if adam else sgd)(model.parameters())
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step, images in enumerate(torch.randn(STEPS, 16, 3, 32, 32, generator=torch.Generator().manual_seed(seed))):
            if last:
                images = images.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            (cross_entropy(model(images), torch.arange(16) % 10) * (later if step > 1 else 1)).backward()
            optimizer.step()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_batchnorm_network_trains_the_same_there(seed: int, tmp_path: Path) -> None:
    verdict = compared(partial(train, seed, False, 0), partial(train, seed, True, 0), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
    assert any(line.startswith("memory format: contiguous in ") for line in verdict.environment)
    train(seed, True, 3, tmp_path / "wrong", 0)
    wrong = compare_folders(tmp_path / "reference", tmp_path / "wrong")
    assert (wrong.verdict, wrong.cause, wrong.step) == ("different", "backward", 0), wrong.explanation


def test_weights_that_noise_moves_under_adam_hide_no_other_loss(tmp_path: Path) -> None:
    """A convolution's bias in front of a BatchNorm has no gradient but rounding, of which Adam makes whole steps."""
    reference, other = (partial(train, 0, last, 0, adam=True) for last in (False, True))
    verdict = compared(reference, partial(other, later=1.05), tmp_path)
    assert (verdict.verdict, verdict.step) == ("different", 2), verdict.explanation
