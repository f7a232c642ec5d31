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
