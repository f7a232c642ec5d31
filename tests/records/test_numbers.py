"""Numbers as people read them."""

import pytest

from trainparity.records.base import INFINITE
from trainparity.records.numbers import counted, exact, number


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "–"),
        (0, "0"),
        (0.1234, "0.123"),
        (12.34, "12.3"),
        (12345.6, "12,346"),
        (2.4e7, "2.4e7"),
        (1.23e-7, "1.2e-7"),
    ],
)
def test_a_number_has_three_digits_and_no_plus_in_its_exponent(value: float | None, written: str) -> None:
    assert number(value) == written


def test_what_is_no_number_is_said() -> None:
    assert [number(value) for value in (float("nan"), INFINITE, -INFINITE)] == ["not a number", "∞", "-∞"]


def test_a_number_that_is_compared_has_its_digits() -> None:
    assert [exact(1.234567e-07), exact(1.23e3, 2), exact(0.0034, 2), exact(float("inf"))] == [
        "1.23457e-7", "1.2e3", "0.0034", "∞",
    ]  # fmt: skip


def test_one_of_something_is_no_plural() -> None:
    assert [counted(count, "step") for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
