"""The one optimizer's step, made by a hook on the last gradient that arrives: the backward pass ends after it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import LABELS, classifier, compared


class _Steps:
    """Calls an update when the gradients of all parameters have arrived from so many passes."""

    def __init__(self, model: nn.Module, update: Callable[[], object], parts: int) -> None:
        self.update, self.every, self.arrived = update, parts * len([*model.parameters()]), 0
        self.handles = [parameter.register_post_accumulate_grad_hook(self) for parameter in model.parameters()]

    def __call__(self, parameter: torch.Tensor) -> None:
        self.arrived += 1
        if self.arrived % self.every == 0:
            self.update()

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def _train(inside: bool, parts: int, lr: float, scale: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    with trainparity.record(model, optimizer, folder, twin=twin, interval=2):
        if inside:
            _Steps(model, update, parts)
        for _ in range(6):
            for batch, labels in zip(torch.randn(16, 4).chunk(parts), LABELS.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(batch), labels) * scale / parts).backward()
            if not inside:
                update()


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


def _train_clipped(inside: bool, parts: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def update() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(5):
            optimizer.zero_grad()
            for part, (batch, labels) in enumerate(
                zip(torch.randn(16, 4).chunk(parts), LABELS.chunk(parts), strict=True), start=1
            ):
                steps = _Steps(model, update, 1) if inside and part == parts else None
                (nn.functional.cross_entropy(model(batch), labels) / parts).backward()
                if steps:
                    steps.remove()
            if not inside:
                update()


def test_clipping_there_is_after_the_last_micro_batch(tmp_path: Path) -> None:
    found = compared(partial(_train_clipped, False, 1), partial(_train_clipped, True, 2), tmp_path)
    assert found.verdict == "equivalent", found.explanation


def _train_scaled(inside: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def update() -> None:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    if inside:
        _Steps(model, update, 1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step, batch in enumerate(torch.randn(6, 16, 4)):
            batch[0, 0] = torch.inf if step in (2, 4) else 0.0
            scaler.scale(nn.functional.cross_entropy(model(batch), LABELS)).backward()
            if not inside:
                update()


def test_gradients_that_a_scaler_does_not_apply_there_are_seen_before_they_are_zeroed(tmp_path: Path) -> None:
    found = compared(partial(_train_scaled, False), partial(_train_scaled, True), tmp_path)
    assert found.verdict == "bitwise", found.explanation


def test_a_scaler_may_skip_a_step_there(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=64.0)

    def update(*_: object) -> None:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    model.weight.register_post_accumulate_grad_hook(update)
    with trainparity.record(model, optimizer, tmp_path, interval=1) as recorder:
        for step in range(4):
            inputs = torch.full((3, 4), torch.inf if step == 2 else 1.0)
            scaler.scale(model(inputs).square().mean()).backward()
    assert recorder.step == 4
