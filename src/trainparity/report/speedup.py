"""How many times faster, and how sure that is."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEAST_PAIRS = 6
"""With fewer, no interval between two of the ratios holds the true one in 95 of 100 cases: 1 - 2 / 2^5 is less."""


class Ratio(NamedTuple):
    """A ratio of step times with its 95 % confidence interval."""

    ratio: float
    low: float
    high: float


def speedup(reference_ms: Sequence[float], configuration_ms: Sequence[float]) -> Ratio:
    """Return the median over pairs of reference step time / configuration step time: above 1 is faster.

    The steps of a pair were made one right after the other, so what slows the machine down for longer than that
    cancels. The interval lies between two of the sorted ratios: those beyond which the median of the distribution
    that they come from lies with a probability of at most 2.5 % each, whatever that distribution (the sign test's
    interval: Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2).

    Args:
        reference_ms: Milliseconds of each step, positive; at least `LEAST_PAIRS`.
        configuration_ms: As many; number i belongs to number i of the reference.
    """
    found = sorted(ratios(reference_ms, configuration_ms))
    outside = _outside(len(found))
    return Ratio(statistics.median(found), found[outside], found[-1 - outside])


def ratios(reference_ms: Sequence[float], configuration_ms: Sequence[float]) -> list[float]:
    """Return the speed-up of each pair of steps."""
    return [theirs / ours for theirs, ours in zip(reference_ms, configuration_ms, strict=True)]


def _outside(count: int) -> int:
    """Return how many of sorted values lie beyond each end: the most, k, with P(Binomial(count, 1/2) <= k) <= 2.5 %."""
    outside, ways = 0, 1 + count
    while 40 * ways <= 2**count:  # whole numbers: 2**1024 is no float
        outside += 1
        ways += math.comb(count, outside + 1)
    return outside
