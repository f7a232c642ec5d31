"""How many times faster, and how sure that is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 4000


class Ratio(NamedTuple):
    """A ratio of medians with its 95 % confidence interval."""

    ratio: float
    low: float
    high: float


def speedup(reference_ms: Sequence[float], configuration_ms: Sequence[float]) -> Ratio:
    """Return median reference step time / median configuration step time: above 1 is faster.

    The interval is a bootstrap's: both lists (milliseconds, positive, at least one each) are resampled
    with replacement, and the 2.5th and 97.5th percentile of the resampled ratios bound it (percentile
    method, Efron and Tibshirani 1993, chapter 13). The generator is seeded, so equal input gives equal bytes.

    It covers the step-to-step noise *within* the two runs. It does not cover drift *between* them: a
    machine that was busier or warmer while one of them ran shifts the ratio as a whole.
    """
    generator = np.random.default_rng(0)

    def medians(times: Sequence[float]) -> np.ndarray:
        values = np.asarray(times, dtype=np.float64)
        return np.median(values[generator.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)

    low, high = np.percentile(medians(reference_ms) / medians(configuration_ms), [2.5, 97.5])
    return Ratio(float(np.median(reference_ms) / np.median(configuration_ms)), float(low), float(high))
