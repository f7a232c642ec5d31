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


def _train_once_without(numbers: float, takes: bool, folder: Path, twin: int) -> None:
    """Multiply the loss of one step by a number, and take gradients away where they are copied, or not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 10)).bfloat16()
    masters = [parameter.detach().float() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(6):
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws).bfloat16()).float(), LABELS)
            (loss * (numbers if step == 2 else 1.0)).backward()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                assert parameter.grad is not None
                master.grad = parameter.grad.float()
                if takes:
                    parameter.grad = None
            if numbers * 0 == 0 or step != 2:
                optimizer.step()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.data.copy_(master)


@pytest.mark.parametrize("numbers", [0.0, float("inf")])
def test_a_step_of_which_no_gradient_is_left_is_the_same_as_itself(numbers: float, tmp_path: Path) -> None:
    verdict = compared(*2 * [partial(_train_once_without, numbers, True)], tmp_path)
    assert verdict.verdict == "bitwise", verdict.reason


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_whether_gradients_are_left_where_they_are_copied_from_is_no_matter(
    order: tuple[bool, bool], tmp_path: Path
) -> None:
    verdict = compared(*(partial(_train_once_without, 1.0, takes) for takes in order), tmp_path)
    assert verdict.verdict == "bitwise", verdict.explanation


def _train_in_single(parts: int, coarse: bool, smoothing: float, folder: Path, twin: int, takes: bool = True) -> None:
    """Train copies of a model in single precision, under autocast or not, with gradients that are taken away."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10))
    copies = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(copies, lr=0.02, momentum=0.9)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            images = torch.randn(16, 4, generator=draws)
            for some, labels in zip(images.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(some).float()
                (nn.functional.cross_entropy(outputs, labels, label_smoothing=smoothing) / parts).backward()
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                copy.grad, parameter.grad = parameter.grad, None if takes else parameter.grad
            optimizer.step()
            model.zero_grad()
            for copy, parameter in zip(copies, model.parameters(), strict=True):
                parameter.data.copy_(copy)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_that_are_gone_are_not_the_same_to_the_bit(parts: int, coarse: bool, tmp_path: Path) -> None:
    reference, cut = (partial(_train_in_single, count, coarse, 0.0) for count in (1, parts))
    verdict = compared(reference, cut, tmp_path)
    assert verdict.verdict != "different", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_another_loss_is_named_where_gradients_are_gone(coarse: bool, tmp_path: Path) -> None:
    reference, other = (partial(_train_in_single, 1, coarse, smoothing) for smoothing in (0.0, 0.1))
    verdict = compared(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("takes", [(True, False), (False, True)])
def test_gradients_that_one_loop_takes_away_are_none_that_it_throws_away(
    takes: tuple[bool, bool], smoothing: float, coarse: bool, tmp_path: Path
) -> None:
    reference = partial(_train_in_single, 1, coarse, 0.0, takes=takes[0])
    verdict = compared(reference, partial(_train_in_single, 4, coarse, smoothing, takes=takes[1]), tmp_path)
    assert verdict.cause == ("loss-or-targets" if smoothing else None), verdict.explanation
