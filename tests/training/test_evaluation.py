import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import CPU, SGD, prepared, spec
from trainparity.records.evaluation import Evaluation
from trainparity.strategies import Execution
from trainparity.training import worker
from trainparity.training.evaluation import score


def test_scores_of_a_small_example() -> None:
    # Class 0 is predicted twice, once rightly, and there twice; 1 once, rightly, and there twice; 3 never.
    found = score(torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 1, 1, 0, 3]))
    assert found.samples == 5
    assert found.accuracy == pytest.approx(2 / 5)
    assert found.precision == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert found.recall == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)


@given(st.lists(st.integers(0, 4), min_size=1))
def test_the_right_answer_scores_one(labels: list[int]) -> None:
    found = score(torch.tensor(labels), torch.tensor(labels))
    assert (found.accuracy, found.precision, found.recall) == (1, 1, 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1))
def test_scores_lie_between_none_and_all(pairs: list[tuple[int, int]]) -> None:
    predicted, labels = torch.tensor(pairs).T
    found = score(predicted, labels)
    assert all(0 <= value <= 1 for value in (found.accuracy, found.precision, found.recall))


def scored(folder: Path, run: str, window: int, lr: float, reference: Path | None = None, **train: Any) -> Evaluation:
    optimizer = SGD.model_copy(update={"lr": lr})
    settings = spec(
        folder, folder / "data", run, workload="tests.support.mlp:Scored", steps=12, window=window, optimizer=optimizer,
        reference=reference, holdout=40, **train,
    )  # fmt: skip
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        worker.run(settings, Execution(device=CPU, num_replicas=1))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Evaluation.read(settings.work / "state/evaluation.json")


def test_a_run_is_scored_on_a_training_of_its_own_though_its_windows_start_from_the_references(tmp_path: Path) -> None:
    prepared(tmp_path)
    learned = scored(tmp_path, "reference", window=4, lr=0.1)
    state = tmp_path / "reference/state"
    stands_still = scored(tmp_path, "whole", window=12, lr=1e-9, reference=state)
    assert learned.accuracy > stands_still.accuracy + 0.2
    assert scored(tmp_path, "windows", window=4, lr=1e-9, reference=state) == stands_still
    # A run that was killed before its score was written has complete windows, and no trainer that went through them.
    (tmp_path / "reference/state/evaluation.json").unlink()
    assert scored(tmp_path, "reference", window=4, lr=0.1) == learned
