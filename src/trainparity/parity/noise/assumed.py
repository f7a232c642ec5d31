"""What is the same by assumption alone: without twins nobody has measured how far right runs part after some steps."""

from torch import Tensor

from trainparity.parity.noise.distance import Judged, distances, names
from trainparity.parity.noise.floor import Floor
from trainparity.parity.recording.trace import Trace
from trainparity.records.numbers import exact

OF_TWINS = "record twins of the reference, of as many steps: `TRAINPARITY_TWIN=1 python train.py`, then 2 and 3"


def assumed_only(left: Trace, right: Trace, floor: Floor, margin: float) -> str | None:
    """Name the first gradient that is another one, which nothing but the growth that is assumed of rounding excuses.

    In a coarse format that excuses anything after a few steps, as a gradient of the other sign. Or the first update of
    all weights: those of single ones may turn with their signs.
    """
    if floor.calibrated:
        return None
    kinds: tuple[tuple[Judged, int, float], ...] = ("gradient", 0, _OTHER), ("update", -1, _OTHER_UPDATE)
    for kind, first, other in kinds:
        apart = distances(left, right, kind)[:, first:]
        for row, column in ((apart > other) & (floor[kind][:, first:] * margin > other)).nonzero().tolist()[:1]:
            tensor, far = names(left, kind)[first:][column], exact(float(apart[row, column]), 2)
            where = f"{kind} {tensor} is {far} of its length apart at step {left.layout.steps[row]}"
            return f"{where}: without twins, right runs may be so too"
    return None


def moved_within_steps(left: Trace, right: Trace, floor: Floor) -> str | None:
    """Say that both loops ask for gradients elsewhere than they start from, as SAM does (Foret et al., 2021).

    How far rounding carries a run there depends on how the loss is curved, which nothing but twins shows.
    """
    again = [bool(trace.arrays["closure/again"].any()) for trace in (left, right)]
    if floor.calibrated or not all(again):
        return None
    return (
        "the runs part by distances alone, and both move the weights within a step, to ask for gradients there: "
        "without twins nobody knows how far right runs part by that"
    )


_OTHER, _OTHER_UPDATE = 0.5, 0.25
"""Part of its length from which on a gradient, and the update of all weights, that is so far off is another one.

Of right runs under bf16 updates were 0.18 apart at most, where two faults made them 0.29 and 0.46.
"""


def of_their_way(start: Tensor, ends: tuple[Tensor, Tensor]) -> float:
    """Return how far apart two runs end, as part of the way that the reference came: float64 sketches [P, S]."""
    way = float((ends[0] - start).norm())
    return float((ends[0] - ends[1]).norm()) / way if way else 0.0
