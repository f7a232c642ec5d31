"""Which steps are traced: all runs agree on them by their numbers alone."""

from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.recording.schedule import schedule
from trainparity.parity.recording.trace import Trace


def test_of_a_long_run_ever_fewer_steps_are_traced(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(4, 2)
    with trainparity.record(model, optimizer, tmp_path):
        for _ in range(8401):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
    layout = Trace.load(tmp_path).layout
    dense, sparse = list(range(50, 2000, 50)), [*range(2000, 4000, 100), *range(4000, 8000, 200)]
    assert layout.steps == [*range(8), *dense, *sparse, 8000, 8400]
    assert layout.made == 8401


@pytest.mark.parametrize("steps, most", [(10**6, 300), (10**7, 400)])
def test_their_number_hardly_grows_with_the_run(steps: int, most: int) -> None:
    traced = schedule(8, None, in_windows=False)
    assert 200 < sum(map(traced, range(0, steps, 50))) < most


@pytest.mark.parametrize("in_windows", [False, True])
def test_an_interval_that_is_asked_for_holds_to_the_end(in_windows: bool) -> None:
    traced = schedule(0, 7, in_windows=in_windows)
    assert [step for step in range(90_000, 90_030) if traced(step)] == [90_006, 90_013, 90_020, 90_027]


def test_windows_have_steps_however_late_they_come() -> None:
    traced = schedule(0, None, in_windows=True)
    assert [step for step in range(90_000, 90_200) if traced(step)] == [90_000, 90_050, 90_100, 90_150]
