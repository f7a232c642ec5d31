"""Distance / floor as a single line over steps."""

import math
from collections.abc import Iterable, Sequence

from trainparity.records.base import INFINITE
from trainparity.records.detail import Strip

_LOWEST = 0.01
"""Times the floor that a line shows at least: what is equal to the last bit lies there as well."""


def over_floor(distance: float | None, floor: float | None) -> float | None:
    """Return distance / floor; 0 of a distance of 0, 1e300 above a floor of 0, null where one is not known."""
    if distance is None or floor is None:
        return None
    if distance == 0:
        return 0.0
    return min(distance / floor, INFINITE) if floor > 0 else INFINITE


def worst_by_column(strips: Iterable[Strip]) -> list[float]:
    """Return the largest distance / floor of all judged strips in each column, what is not known left out."""
    columns: dict[int, float] = {}
    for strip in strips:
        for distances, floors in zip(strip.distance, strip.floor, strict=True) if strip.judged else ():
            for step, distance, floor in zip(strip.steps, distances, floors, strict=True):
                columns[step] = max(columns.get(step, 0.0), over_floor(distance, floor) or 0.0)
    return [columns[step] for step in sorted(columns)]


def points(values: Sequence[float], margin: float, width: int, height: int) -> tuple[str, float]:
    """Return a polyline's points and the height of the margin's line, on a logarithmic axis within width x height."""
    top = math.log10(max(10 * margin, *values))
    bottom = math.log10(_LOWEST)

    def y(value: float) -> float:
        return round(height - (height - 2) * (math.log10(max(value, _LOWEST)) - bottom) / (top - bottom) - 1, 1)

    step = width / max(1, len(values) - 1)
    return " ".join(f"{round(index * step, 1):g},{y(value):g}" for index, value in enumerate(values)), y(margin)
