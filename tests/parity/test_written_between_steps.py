"""Weights that both loops write into between steps, as where they cut them off at a limit."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import LABELS, compared

Writes = Callable[[int, Tensor], object]
"""Given the number of a step, and a parameter after it."""


def train(writes: Writes, parts: int, folder: Path, twin: int) -> None:
    """Train 12 steps under bf16, and write into the weights after each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step in range(12):
            optimizer.zero_grad()
            samples = torch.randn(16, 8, generator=draws)
            for some, labels in zip(samples.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(some)
                nn.functional.cross_entropy(outputs.float(), labels).div(parts).backward()
            optimizer.step()
            with torch.no_grad():
                for parameter in model.parameters():
                    writes(step, parameter)


def cuts(step: int, parameter: Tensor) -> None:
    parameter.clamp_(-0.35, 0.35)


def decays(step: int, parameter: Tensor) -> None:
    parameter.mul_(0.999)


def leaves(step: int, parameter: Tensor) -> None:
    pass


def in_some(writes: Writes, some: Callable[[int], bool], step: int, parameter: Tensor) -> None:
    if some(step):
        writes(step, parameter)


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("writes", [cuts, decays])
def test_in_which_step_a_loop_cuts_is_no_exact_fact_where_both_do(writes: Writes, parts: int, tmp_path: Path) -> None:
    """Rounding may bring one run to the limit a step before the other."""
    verdict = compared(partial(train, writes, 1), partial(train, writes, parts), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


SOME: dict[str, Callable[[int], bool]] = {
    "each other": lambda step: step % 2 == 0, "late": lambda step: step >= 4, "early": lambda step: step < 4
}  # fmt: skip


@pytest.mark.parametrize("some", SOME)
@pytest.mark.parametrize("writes", [cuts, decays])
def test_that_one_does_so_in_other_steps_is_one(writes: Writes, some: str, tmp_path: Path) -> None:
    other = partial(in_some, writes, SOME[some])
    verdict = compared(partial(train, writes, 1), partial(train, other, 1), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "weights-not-loaded"), verdict.explanation
    assert "in the other run none does so" in (verdict.explanation or "")


def test_that_one_loop_alone_cuts_is_one(tmp_path: Path) -> None:
    verdict = compared(partial(train, leaves, 1), partial(train, decays, 1), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "weights-not-loaded", 1)
    assert "in the other run none does so" in (verdict.explanation or "")


@pytest.mark.parametrize("rate", [0.999, 0.9985])
def test_writing_other_values_is_one(rate: float, tmp_path: Path) -> None:
    """All bits are the same until both loops write for the first time, which a coarse format's floor may hide."""

    def shrinks(by: float, parameter: Tensor) -> None:
        parameter.mul_(by)

    some = [partial(in_some, lambda _, p, by=by: shrinks(by, p), lambda step: step == 4) for by in (0.999, rate)]
    verdict = compared(*(partial(train, writes, 1) for writes in some), tmp_path)
    said = ("bitwise", None, None) if rate == 0.999 else ("different", "weights-not-loaded", 5)
    assert (verdict.verdict, verdict.cause, verdict.step) == said, verdict.explanation


@pytest.mark.parametrize("rate", [1 - 3e-5, 1 - 6e-5])
def test_writing_little_and_another_part_of_it_is_one(rate: float, tmp_path: Path) -> None:
    """As decay by hand, of the size of a learning rate times a usual one."""
    runs = (partial(train, lambda _, parameter, by=by: parameter.mul_(by), 1) for by in (1 - 3e-5, rate))
    verdict = compared(*runs, tmp_path)
    said = ("bitwise", None, None) if rate == 1 - 3e-5 else ("different", "weights-not-loaded", 1)
    assert (verdict.verdict, verdict.cause, verdict.step) == said, verdict.explanation


def test_two_forms_of_one_decay_are_one_training(tmp_path: Path) -> None:
    def adds(_: int, parameter: Tensor) -> None:
        parameter.add_(parameter.clone(), alpha=-3e-5)

    runs = (partial(train, lambda _, parameter: parameter.mul_(1 - 3e-5), 1), partial(train, adds, 1))
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict in ("equivalent", "bitwise"), verdict.explanation
