"""Hooks of the loop's own on the optimizer's step: what they do belongs to the step, whenever they were registered."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


def _train(late: bool, several: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    weights, *others = model.parameters()
    parts = [[weights], others] if several else [[weights, *others]]
    updates = [torch.optim.SGD(part, lr=0.1) for part in parts]

    def decay(*_: Any) -> None:
        weights.data.mul_(0.9)

    if not late:
        updates[-1].register_step_post_hook(decay)
    with trainparity.record(model, updates, folder, twin=twin, interval=1):
        if late:
            updates[-1].register_step_post_hook(decay)
        for images in torch.randn(4, 16, 4, generator=torch.Generator().manual_seed(1)):
            model.zero_grad()
            cross_entropy(model(images), LABELS).backward()
            for one in updates:
                one.step()


def test_a_younger_hook_belongs_to_the_step_too(tmp_path: Path) -> None:
    verdict = compared(partial(_train, False, False), partial(_train, True, False), tmp_path)
    assert verdict.verdict == "bitwise", verdict.explanation


def test_so_does_one_of_the_last_of_several_optimizers(tmp_path: Path) -> None:
    verdict = compared(partial(_train, False, True), partial(_train, True, True), tmp_path)
    assert verdict.verdict == "bitwise", verdict.explanation
