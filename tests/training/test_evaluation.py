import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
