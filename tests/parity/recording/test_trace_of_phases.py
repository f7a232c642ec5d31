"""Optimizers of two classes, one after the other on one model: each has options that the other one has not."""

import shutil
from pathlib import Path

import torch
from torch import nn, ones

import trainparity
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace


def test_an_option_that_the_other_optimizer_has_is_zero(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    first: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, dampening=0.5)
    second = torch.optim.Adam(model.parameters(), lr=0.01)
    with trainparity.record(model, first, tmp_path) as recorder:
        for optimizer in (first, first, second):
            if optimizer is second:
                recorder.go_on_with(second)
            optimizer.zero_grad()
            model(ones(3, 4)).square().mean().backward()
            optimizer.step()
    arrays = Trace.load(tmp_path).arrays
    assert arrays["setting/dampening"][:, 0].tolist() == [0.5, 0.5, 0.0]
    assert arrays["setting/betas.0"][:, 0].tolist() == [0.0, 0.0, 0.9]
    assert compare_folders(tmp_path, shutil.copytree(tmp_path, tmp_path / "other")).verdict == "bitwise"
