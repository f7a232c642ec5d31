"""Hooks of the loop's own on the optimizer's step: what they do belongs to the step, whenever they were registered."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


def _train(when: str, several: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    weights, *others = model.parameters()
    parts = [[weights], others] if several else [[weights, *others]]
    updates = [torch.optim.SGD(part, lr=0.1) for part in parts]

    def decay(*_: Any) -> None:
        weights.data.mul_(0.9)

    if when == "early":
        updates[-1].register_step_post_hook(decay)
    with trainparity.record(model, updates, folder, twin=twin, interval=1):
        if when == "late":
            updates[-1].register_step_post_hook(decay)
        for images in torch.randn(4, 16, 4, generator=torch.Generator().manual_seed(1)):
            model.zero_grad()
            cross_entropy(model(images), LABELS).backward()
            if when == "in each step":
                hook = updates[-1].register_step_post_hook(decay)
            for one in updates:
                one.step()
            if when == "in each step":
                hook.remove()


@pytest.mark.parametrize("when", ["late", "in each step"])
@pytest.mark.parametrize("several", [False, True])
def test_a_younger_hook_belongs_to_the_step_too(when: str, several: bool, tmp_path: Path) -> None:
    verdict = compared(partial(_train, "early", several), partial(_train, when, several), tmp_path)
    assert verdict.verdict == "bitwise", verdict.explanation


def shrink(since: int | None, folder: Path, twin: int) -> None:
    """Train with a hook that shrinks weights after each step from one on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    count = iter(range(100))

    def after(*_: Any) -> None:
        if since is not None and next(count) >= since:
            model[2].weight.data.mul_(0.99)

    optimizer.register_step_post_hook(after)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for images in torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1)):
            optimizer.zero_grad()
            cross_entropy(model(images), LABELS).backward()
            optimizer.step()


def test_a_hook_that_begins_later_changes_no_state(tmp_path: Path) -> None:
    found = compared(partial(shrink, None), partial(shrink, 3), tmp_path)
    assert (found.verdict, found.cause, found.step) == ("different", "update", 3), found.explanation
