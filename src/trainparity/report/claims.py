"""Published against measured figures on one logarithmic axis, on which the published one is 1."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from trainparity.records.claims import ClaimResult
from trainparity.records.numbers import number


class Row(NamedTuple):
    """One claim; places are percentages of the axis."""

    claim: ClaimResult
    low: float
    """Where begins what confirms the claim."""
    high: float
    """Where it ends."""
    place: float
    """Of what was measured."""
    text: str
    """Measured / published."""


class Axis(NamedTuple):
    """All claims that have two figures."""

    rows: list[Row]
    published: float
    """The place of 1."""
    ticks: list[tuple[float, str]]
    """Places and what stands there."""


_LEAST = 2.0
"""The axis reaches at least so many times the published figure, and as small a part of it."""


def of(results: Iterable[ClaimResult]) -> Axis | None:
    """Return the axis; None where no claim has both figures."""
    shown = [one for one in results if one.figure and one.value is not None and one.value > 0]
    if not shown:
        return None
    found = [one.value / one.figure for one in shown if one.value and one.figure]
    end = math.log10(1.1 * max(_LEAST, *found, *(1 / ratio for ratio in found)))

    def place(ratio: float) -> float:
        return round(100 * min(max((math.log10(ratio) + end) / (2 * end), 0.0), 1.0), 2)

    def bound(one: ClaimResult, value: float | None, open_end: float) -> float:
        return place(value / one.figure) if value and one.figure and value > 0 else open_end

    rows = [
        Row(one, bound(one, one.low, 0.0), bound(one, one.high, 100.0), place(ratio), f"{number(ratio)} ×")
        for one, ratio in zip(shown, found, strict=True)
    ]
    decades = range(math.ceil(-end), math.floor(end) + 1)
    marks = [10.0**power for power in decades] if len(decades) > 2 else [1 / _LEAST, 1.0, _LEAST]
    return Axis(rows, place(1.0), [(place(mark), f"{mark:g}×") for mark in marks])
