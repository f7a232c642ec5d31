"""A figure: what a measure of claims.yaml comes to."""

import statistics
from typing import NamedTuple

from trainparity.claims.study import NotMeasurable
from trainparity.records.timing import Timing


class Figure(NamedTuple):
    """What was measured."""

    text: str
    """With its unit."""
    value: float | None = None
    """As a number, to be compared with `expect`."""
    holds: bool | None = None
    """Whether the claim is confirmed, for measures that judge themselves."""
    timings: tuple[Timing, ...] = ()
    """What it was computed from, if it is one of time or memory."""
    remark: str | None = None


def median_s(timing: Timing) -> float:
    """Return the median time of a step in seconds."""
    return statistics.median(timing.step_ms) / 1000


def compile_s(timing: Timing) -> float:
    """Return how many seconds a run's compilation took.

    Raises:
        NotMeasurable: Dynamo did not count them.
    """
    if timing.compile_s is None:
        raise NotMeasurable(f"{timing.run} was not compiled, or this torch keeps no account of it")
    return timing.compile_s
