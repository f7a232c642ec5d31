"""Which steps are traced: all runs agree on them by their numbers alone."""

from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.compare import compare_folders
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
    traced = schedule(8, None, window=0)
    assert 200 < sum(map(traced, range(0, steps, 50))) < most


@pytest.mark.parametrize("window", [0, 20])
def test_an_interval_that_is_asked_for_holds_to_the_end(window: int) -> None:
    traced = schedule(0, 7, window=window)
    assert [step for step in range(90_000, 90_030) if traced(step)] == [90_006, 90_013, 90_020, 90_027]


@pytest.mark.parametrize(
    ("window", "steps"), [(20, [0, 19, 20, 39, 40, 59, 60, 79]), (1, list(range(80))), (60, [0, 50, 59, 60])]
)
def test_each_window_has_its_first_and_its_last_step_however_late_it_comes(window: int, steps: list[int]) -> None:
    traced, begin = schedule(0, None, window=window), 90_000
    assert [step for step in range(80) if traced(begin + step)] == steps


def test_another_rate_in_mid_window_is_seen_though_its_steps_are_not_traced(tmp_path: Path) -> None:
    """Each window begins with the reference's weights, and its last step with what its others have made of them."""

    def train(folder: Path, faster: range, **windows: object) -> None:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(1)
        with trainparity.record(model, optimizer, folder, every=20, **windows):  # type: ignore[arg-type]
            for step in range(60):
                optimizer.param_groups[0]["lr"] = 0.5 if step in faster else 0.1
                optimizer.zero_grad()
                model(torch.randn(8, 4, generator=draws)).square().mean().backward()
                optimizer.step()

    train(tmp_path / "reference", range(0))
    train(tmp_path / "same", range(0), follow=tmp_path / "reference")
    train(tmp_path / "faster", range(22, 38), follow=tmp_path / "reference")
    assert compare_folders(tmp_path / "reference", tmp_path / "same").verdict == "bitwise"
    found = compare_folders(tmp_path / "reference", tmp_path / "faster")
    assert (found.verdict, found.step) == ("different", 39)
