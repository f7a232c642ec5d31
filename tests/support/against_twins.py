"""Two small trainings of this process, of which the first gives the noise floor, and what is said of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict

Training = Callable[[Path, int], None]
"""Trains, recorded into a folder, as the twin of a number; 0: none."""


def compared(reference: Training, test: Training, folder: Path) -> Verdict:
    """Compare a training with another that was recorded with two twins."""
    for twin in range(3):
        reference(folder / "reference", twin)
    test(folder / "test", 0)
    return compare_folders(folder / "reference", folder / "test")


def train_towards_one(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Tensor, folder: Path, twin: int, *, parts: int
) -> None:
    """Train a model to return ones, a step for each batch of data [steps, B, ...], in so many passes."""
    with trainparity.record(model, optimizer, folder, twin=twin):
        for batch in data:
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                ((model(part) - 1).square().mean() / parts).backward()
            optimizer.step()


LABELS = torch.arange(16) % 10


def classifier() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))


def train_in_parts(
    parts: int, coarse: bool, folder: Path, twin: int, *,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer], scale: float, before_update: Callable[[nn.Module], object],
    make: Callable[[], nn.Module] = classifier, loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
) -> None:  # fmt: skip
    """Train a new model for 4 steps of 16 samples [4] in so many passes, under bf16 autocast where asked.

    Args:
        parts: Passes of a step.
        coarse: Whether they are under autocast.
        folder: Where it is recorded.
        twin: The twin's number.
        optimizer: Makes the optimizer.
        scale: What the mean loss of each pass is multiplied by.
        loss: The mean loss of outputs in single precision and labels.
        before_update: Called between backward and the update.
        make: Makes the model.
    """
    torch.manual_seed(0)
    model = make()
    updates = optimizer(model)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, updates, folder, twin=twin, interval=1):
        for _ in range(4):
            updates.zero_grad()
            batch = torch.randn(16, 4, generator=draws)
            for images, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(images)
                (scale * loss(outputs.float(), labels)).backward()
            before_update(model)
            updates.step()


def train(make: Callable[[], nn.Module], loss: Callable[[Any], Tensor], coarse: bool, folder: Path, twin: int) -> None:
    """Train a new model for 4 steps of 16 samples [4], under bf16 autocast where asked; `loss` is computed outside."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                outputs = model(torch.randn(16, 4, generator=draws))
            loss(outputs).backward()
            optimizer.step()
