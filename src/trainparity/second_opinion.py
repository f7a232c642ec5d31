"""A difference judged again in float64, where rounding is a billion times smaller and a fault is as large as before."""

from trainparity.records.numbers import exact
from trainparity.records.verdict import JUDGED, Verdict

_ROUNDING = 1e-4
"""Part of a distance that is left of it in float64 if it was rounding, at the most."""


def in_float64(before: Verdict, again: Verdict) -> tuple[bool, str]:
    """Compare a verdict of `different` with that on the same runs in float64.

    Returns:
        Whether float64 shows that the difference is rounding, and a clause that says what it shows.
    """
    if again.verdict not in JUDGED:
        return False, f"float64 gave no second opinion: {again.reason}"
    distances = [max((worst.distance for worst in verdict.worst), default=0.0) for verdict in (before, again)]
    text = f"in float64 the largest distance is {exact(distances[1], 2)}, after {exact(distances[0], 2)}"
    return distances[1] <= _ROUNDING * distances[0], text
