"""What every benchmark does: time things in turns, and hold their ratio against a target."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from trainparity.report.speedup import Ratio, speedup

Lane = Callable[[], object]
"""One step of what is timed."""


def take_turns(lanes: Sequence[Lane], steps: int, warm_up: int = 3) -> list[list[float]]:
    """Return the seconds of each lane's steps, made in turns: drift of the machine falls on all of them.

    Who is first changes with every turn, so that none finds more in the caches than the others.
    """
    return in_turns([partial(seconds, lane) for lane in lanes], steps, warm_up)


def in_turns(timed: Sequence[Callable[[], float]], steps: int, warm_up: int = 0) -> list[list[float]]:
    """Do the same with steps that return their own seconds."""
    times: list[list[float]] = [[] for _ in timed]
    for number in range(warm_up + steps):
        for lane in range(len(timed))[:: 1 if number % 2 else -1]:
            times[lane].append(timed[lane]())
    return [each[warm_up:] for each in times]


def seconds(lane: Lane) -> float:
    """Return how long one step takes."""
    started = time.perf_counter()
    lane()
    return time.perf_counter() - started


def figures(times: Sequence[float], beside: Sequence[float]) -> dict[str, float]:
    """Return the median of `times` over `beside` with its 95 % interval, as a result file keeps it."""
    return {key: round(value, 4) for key, value in speedup(times, beside)._asdict().items()}


def ratio(found: Mapping[str, Any]) -> Ratio:
    """Return what `figures` made, to hold it against a target."""
    return Ratio(found["ratio"], found["low"], found["high"])


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure that a benchmark must reach."""

    name: str
    """In 36 characters."""
    what: str
    """What is divided by what, in one sentence."""
    found: Ratio
    at_most: float | None = None
    at_least: float | None = None
    limited_by: str
    """What limits it where it is missed."""

    @property
    def margin(self) -> Ratio:
        """How far the target is surpassed, with the interval: 1 is just reached, below 1 it is missed."""
        if self.at_least is not None:
            return Ratio(*(value / self.at_least for value in self.found))
        assert self.at_most is not None
        ratio, low, high = (self.at_most / max(value, 1e-9) for value in self.found)
        return Ratio(ratio, high, low)

    @property
    def reached(self) -> bool:
        """Whether the figure, or the median of its ratios, is within the target."""
        return self.margin.ratio >= 1

    def record(self) -> dict[str, Any]:
        """Return it as a result file keeps it."""
        return asdict(self) | {"found": [round(value, 4) for value in self.found]}


def exactly(value: float) -> Ratio:
    """Return a figure that was counted and has no spread."""
    return Ratio(value, value, value)
