"""Buffers that one run alone has."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.against_twins import Training, compared


class Masked(nn.Linear):
    """A layer with a buffer or without one."""

    def __init__(self, buffer: str) -> None:
        super().__init__(4, 2)
        if buffer:
            self.register_buffer("own", torch.ones(4))
        self.counts = buffer == "changing"

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.counts:
            self.own += 1
        return super().forward(values)


def _train(make: Callable[[], nn.Module], folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 4, generator=draws)).square().mean().backward()
            optimizer.step()


def _masked(buffer: str) -> Training:
    return partial(_train, partial(Masked, buffer))


def test_a_constant_buffer_of_one_run_is_no_difference(tmp_path: Path) -> None:
    for left, right in (("constant", ""), ("", "constant")):
        verdict = compared(_masked(left), _masked(right), tmp_path / f"{left}-{right}")
        assert verdict.verdict == "bitwise", verdict.reason


def test_a_buffer_that_changes_in_one_run_alone_is_not_left_out(tmp_path: Path) -> None:
    verdict = compared(_masked(""), _masked("changing"), tmp_path)
    assert (verdict.verdict, verdict.reason) == ("cannot judge", "buffers of one run only: own")


class Attends(nn.Module):
    """Attends to what lies before, by a mask of so many positions that adds a number."""

    def __init__(self, positions: int, hidden: float, first: float = 0.0) -> None:
        super().__init__()
        self.made, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        mask = torch.full((positions, positions), hidden).triu(1)
        mask[1, 0] = first
        self.register_buffer("mask", mask)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        made, length = torch.tanh(self.made(values)), len(values)
        scores = made @ made.T + self.mask[:length, :length]
        found: torch.Tensor = self.last(torch.softmax(scores, -1) @ made)
        return found


@pytest.mark.parametrize(
    ("positions", "hidden", "first", "said"),
    [
        (8, -1e9, 0.0, "bitwise"), (8, float(torch.finfo().min), 0.0, "bitwise"), (32, -torch.inf, 0.0, "bitwise"),
        (8, -1.0, 0.0, "different"), (8, -torch.inf, 0.5, "different"), (32, -1e9, 0.5, "different"),
    ],
)  # fmt: skip
def test_constants_of_another_length_or_other_values_that_make_nothing_else_are_no_difference(
    positions: int, hidden: float, first: float, said: str, tmp_path: Path
) -> None:
    makes = (partial(Attends, 8, -torch.inf), partial(Attends, positions, hidden, first))
    verdict = compared(*(partial(_train, make) for make in makes), tmp_path)
    assert verdict.verdict == said, verdict.explanation or verdict.reason


class Causal(nn.Linear):
    """A layer that adds a mask of infinities to what it makes, which hides nothing of it here."""

    def __init__(self, fused: bool) -> None:
        super().__init__(4, 4)
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))
        self.fused = fused

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        made = super().forward(values) if self.fused else values @ self.weight.T + self.bias
        return made + self.mask[-1]


def test_a_mask_of_infinities_is_judged_by_its_bits(tmp_path: Path) -> None:
    verdict = compared(*(partial(_train, partial(Causal, fused)) for fused in (True, False)), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation or verdict.reason
