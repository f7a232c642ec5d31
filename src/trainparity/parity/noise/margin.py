"""How many times the noise floor runs may be apart."""

from trainparity.params import LARGEST_MARGIN
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.trace import Layout

MARGIN = 16.0
"""The margin of fp32: a few rare roundings may decide there, which no twin happened to make."""

_COARSE = 5 / 16
"""Part of the margin in a coarse format, where every product is rounded, so that a distance is the sum of very many
roundings: the furthest right run in bf16 that was seen lay at 3.4 floors, as twins move all weights by a unit of it."""


def check(margin: float) -> None:
    """Refuse a margin with which a verdict would mean nothing.

    Raises:
        ValueError: it is no number from 1 to `LARGEST_MARGIN`.
    """
    if not 1 <= margin <= LARGEST_MARGIN:  # nan is not
        raise ValueError(f"margin is {margin}; it must be from 1 to {LARGEST_MARGIN:,}")


def is_coarse(layout: Layout) -> bool:
    """Tell whether a run computes in fp16, bf16 or coarser; TF32 rounds products alone, and stores fp32."""
    return layout.unit_roundoff >= UNIT_ROUNDOFF["fp16"] and layout.precision != "tf32"


def margin_of(layout: Layout, margin: float) -> float:
    """Return the margin in the format of a run.

    Args:
        layout: The reference's.
        margin: That of fp32.
    """
    return max(1.0, _COARSE * margin) if is_coarse(layout) else margin
