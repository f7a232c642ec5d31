"""Weights that a loop copies from fp32 masters into a model in bf16, after the optimizer's step."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import LABELS, compared


def _train(
    parts: int, rate: float, copies: bool, folder: Path, twin: int, *, moved: bool = False, scale: float = 1.0
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 10)).bfloat16()
    masters = [parameter.detach().float() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=rate)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            model.zero_grad()
            images = torch.randn(16, 4, generator=draws).bfloat16()
            for some, labels in zip(images.chunk(parts), LABELS.chunk(parts), strict=True):
                (scale * nn.functional.cross_entropy(model(some).float(), labels) / parts).backward()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                assert parameter.grad is not None
                master.grad = parameter.grad.float()
                if moved:
                    parameter.grad = None
            optimizer.step()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                if copies:
                    parameter.data.copy_(master)


def test_a_batch_may_be_cut_where_masters_are_copied_back(tmp_path: Path) -> None:
    verdict = compared(partial(_train, 1, 1e-2, True), partial(_train, 4, 1e-2, True), tmp_path)
    assert verdict.verdict == "equivalent", verdict.reason


@pytest.mark.parametrize(
    ("rate", "copies", "cause"), [(3e-2, True, "update"), (1e-2, False, "parameters-not-updated")], ids=str
)
def test_another_update_of_masters_is_seen(rate: float, copies: bool, cause: str, tmp_path: Path) -> None:
    verdict = compared(partial(_train, 1, 1e-2, True), partial(_train, 1, rate, copies), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation


def test_masters_that_nobody_copies_train_nothing(tmp_path: Path) -> None:
    verdict = compared(*2 * [partial(_train, 1, 1e-2, False)], tmp_path)
    assert verdict.verdict == "cannot judge" and "any weight" in str(verdict.reason)


@pytest.mark.parametrize(
    ("parts", "scale", "said"),
    [(1, 1.0, {"bitwise"}), (4, 1.0, {"equivalent"}), (1, 2.0, {"cannot judge", "different"})],
)
def test_gradients_that_are_gone_at_the_step_are_judged_as_backward_made_them(
    parts: int, scale: float, said: set[str], tmp_path: Path
) -> None:
    """AdamW makes nearly the same update of twice the gradient."""
    reference = partial(_train, 1, 1e-2, True, moved=True)
    verdict = compared(reference, partial(_train, parts, 1e-2, True, moved=True, scale=scale), tmp_path)
    assert verdict.verdict in said, verdict.reason
