import math
import random
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainparity.report.speedup import LEAST_PAIRS, speedup

PAIRS = st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0.01, 1e5)), min_size=LEAST_PAIRS, max_size=40)
Pairs = list[tuple[float, float]]


def apart(pairs: Pairs) -> tuple[list[float], list[float]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


@given(PAIRS)
def test_the_interval_contains_the_ratio(pairs: Pairs) -> None:
    ratio, low, high = speedup(*apart(pairs))
    assert low <= ratio <= high


@given(PAIRS, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(pairs: Pairs, scale: float) -> None:
    scaled = speedup(*apart([(scale * first, scale * second) for first, second in pairs]))
    assert scaled == pytest.approx(speedup(*apart(pairs)), rel=1e-9)


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(pairs: Pairs, order: random.Random) -> None:
    assert speedup(*apart(order.sample(pairs, len(pairs)))) == speedup(*apart(pairs))


@given(st.lists(st.floats(0.01, 1e5), min_size=LEAST_PAIRS, max_size=40))
def test_a_machine_that_slows_both_steps_of_a_pair_changes_nothing(slowness: list[float]) -> None:
    assert speedup([3 * slow for slow in slowness], slowness) == pytest.approx((3.0, 3.0, 3.0))


def test_half_the_time_is_twice_the_speed_and_no_noise_is_no_interval() -> None:
    assert speedup([10.0] * 20, [5.0] * 20) == (2.0, 2.0, 2.0)


def test_more_noise_is_a_wider_interval() -> None:
    quiet = speedup([100.0 + step % 3 for step in range(20)], [100.0] * 20)
    noisy = speedup([100.0 + 20 * (step % 3) for step in range(20)], [100.0] * 20)
    assert noisy.high - noisy.low > quiet.high - quiet.low


@pytest.mark.parametrize("count, beyond", [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (200, 85)])
def test_the_bounds_are_those_of_the_published_table(count: int, beyond: int) -> None:
    """The number of ratios beyond each bound, from tables of the sign test at 5 %, two-sided."""
    ratio = speedup([float(number) for number in range(1, count + 1)], [1.0] * count)
    assert (ratio.low, ratio.high) == (1 + beyond, count - beyond)


def test_a_pair_of_equals_under_a_load_that_comes_and_goes_has_1_in_its_interval() -> None:
    """1,000 runs of 20 pairs; steps are 1.7 times as long while the load is on, some are stalled besides."""
    draw = random.Random(0)

    def steps() -> list[float]:
        loaded, times = False, []
        for _ in range(40):
            loaded ^= draw.random() < 0.05
            stalled = 1 + (draw.random() < 0.05) * draw.expovariate(1)
            times.append((1.7 if loaded else 1.0) * stalled * math.exp(draw.gauss(0, 0.03)))
        return times

    held = 0
    for _ in range(1000):
        times = steps()
        turns = zip(times[::2], times[1::2], strict=True)
        pairs = chain.from_iterable([pair[:: 1 if number % 2 else -1] for number, pair in enumerate(turns)])
        flat = list(pairs)
        _, low, high = speedup(flat[::2], flat[1::2])
        held += low <= 1 <= high
    assert held >= 940


def test_more_pairs_than_a_float_counts_ways_of_have_an_interval() -> None:
    """2**1024 is no float."""
    found = speedup([2.0 + 0.001 * number for number in range(1500)], [1.0] * 1500)
    assert 2.6 < found.low < found.ratio < found.high < 2.9
