"""Optimizers of two classes, one after the other on one model: each has options that the other one has not."""

from pathlib import Path

import torch
from torch import nn, ones

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace


def test_an_option_that_the_other_optimizer_has_is_zero(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        _train(folder)
    arrays = Trace.load(tmp_path / "a").arrays
    assert arrays["setting/dampening"][:, 0].tolist() == [0.5, 0.5, 0.0]
    assert arrays["setting/betas.0"][:, 0].tolist() == [0.0, 0.0, 0.9]
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "bitwise"


def _train(folder: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    first: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, dampening=0.5)
    second = torch.optim.Adam(model.parameters(), lr=0.01)
    with trainparity.record(model, first, folder) as recorder:
        for optimizer in (first, first, second):
            if optimizer is second:
                recorder.go_on_with(second)
            optimizer.zero_grad()
            model(ones(3, 4)).square().mean().backward()
            optimizer.step()
