"""The one optimizer's step, made by a hook on the last gradient that arrives: the backward pass ends after it."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import LABELS, classifier, compared


class _Steps:
    """Makes a step and zeroes the gradients when those of all parameters have arrived from so many passes."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, parts: int) -> None:
        self.optimizer, self.every, self.arrived = optimizer, parts * len([*model.parameters()]), 0
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self)

    def __call__(self, parameter: torch.Tensor) -> None:
        self.arrived += 1
        if self.arrived % self.every == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()


def _train(inside: bool, parts: int, lr: float, scale: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=2):
        if inside:
            _Steps(model, optimizer, parts)
        for _ in range(6):
            for batch, labels in zip(torch.randn(16, 4).chunk(parts), LABELS.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(batch), labels) * scale / parts).backward()
            if not inside:
                optimizer.step()
                optimizer.zero_grad()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("lr", "scale", "verdict", "cause"),
    [
        (0.1, 1.0, "equivalent", None),
        (0.2, 1.0, "different", "learning-rate"),
        (0.1, 2.0, "different", "loss-normalisation"),
    ],
)
def test_a_step_in_the_backward_pass_is_the_loops_step(
    parts: int, lr: float, scale: float, verdict: str, cause: str | None, tmp_path: Path
) -> None:
    found = compared(partial(_train, False, 1, 0.1, 1.0), partial(_train, True, parts, lr, scale), tmp_path)
    expected = "bitwise" if verdict == "equivalent" and parts == 1 else verdict
    assert (found.verdict, found.cause) == (expected, cause), found
