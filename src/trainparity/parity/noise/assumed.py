"""What is the same by assumption alone: without twins nobody has measured how far right runs part after some steps."""

from torch import Tensor

from trainparity.parity.noise.distance import distances, names
from trainparity.parity.noise.floor import Floor
from trainparity.parity.recording.trace import Trace
from trainparity.records.numbers import exact

OF_TWINS = "record twins of the reference, of as many steps: `TRAINPARITY_TWIN=1 python train.py`, then 2 and 3"


def assumed_only(left: Trace, right: Trace, floor: Floor, margin: float) -> str | None:
    """Name the first gradient that is another one, which nothing but the growth that is assumed of rounding excuses.

    In a coarse format that excuses anything after a few steps, as a gradient of the other sign.
    """
    if floor.calibrated:
        return None
    apart = distances(left, right, "gradient")
    excused = (apart > _OTHER) & (floor["gradient"] * margin > _OTHER)
    for row, column in excused.nonzero().tolist()[:1]:
        tensor, far = names(left, "gradient")[column], exact(float(apart[row, column]), 2)
        step = left.layout.steps[row]
        return f"gradient {tensor} is {far} of its length apart at step {step}: without twins, right runs may be so too"
    return None


_OTHER = 0.5
"""Part of its length from which on a gradient that is so far from another one is no longer the same."""


def of_their_way(start: Tensor, ends: tuple[Tensor, Tensor]) -> float:
    """Return how far apart two runs end, as part of the way that the reference came: float64 sketches [P, S]."""
    way = float((ends[0] - start).norm())
    return float((ends[0] - ends[1]).norm()) / way if way else 0.0
