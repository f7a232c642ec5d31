import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainparity.report.speedup import speedup

TIMES = st.lists(st.floats(0.01, 1e5), min_size=2, max_size=40)


@given(TIMES, TIMES)
def test_the_interval_contains_the_ratio(reference: list[float], configuration: list[float]) -> None:
    ratio, low, high = speedup(reference, configuration)
    assert low <= ratio * (1 + 1e-12)
    assert ratio <= high * (1 + 1e-12)


@given(TIMES, TIMES, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(reference: list[float], other: list[float], scale: float) -> None:
    scaled = speedup([scale * t for t in reference], [scale * t for t in other])
    assert scaled == pytest.approx(speedup(reference, other), rel=1e-9)


@given(TIMES)
def test_equal_times_are_a_ratio_of_one_inside_the_interval(times: list[float]) -> None:
    ratio, low, high = speedup(times, times)
    assert ratio == 1
    assert low <= 1 <= high


@given(TIMES, TIMES)
def test_equal_input_gives_equal_bytes(reference: list[float], configuration: list[float]) -> None:
    assert speedup(reference, configuration) == speedup(reference, configuration)


def test_half_the_time_is_twice_the_speed_and_no_noise_is_no_interval() -> None:
    assert speedup([10.0] * 20, [5.0] * 20) == (2.0, 2.0, 2.0)


def test_more_noise_is_a_wider_interval() -> None:
    quiet = speedup([100.0 + step % 3 for step in range(20)], [100.0] * 20)
    noisy = speedup([100.0 + 20 * (step % 3) for step in range(20)], [100.0] * 20)
    assert noisy.high - noisy.low > quiet.high - quiet.low
