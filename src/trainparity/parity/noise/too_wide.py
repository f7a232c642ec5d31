"""Whether a noise floor is too wide to prove that two runs are the same training."""

from collections.abc import Sequence

from trainparity.parity.noise.distance import distances
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.resolution import gradient_width, update_width
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.numbers import exact
from trainparity.records.verdict import Worst

_NARROWEST = 4
"""The smallest margin: right runs lie nearer to the reference than that, in any format."""

_HARDLY_APART, _HARDLY = 1 / 16, 1e-3
"""Floors by which tensors, and part by which whole gradients and updates may be apart where floors are too wide."""

LOST = 1.0
"""Relative distance of an update that is lost: no floor times its margin may excuse it."""

APART = 2
"""Floors that updates of right runs may be apart in the formats in which that is wide."""


def too_wide(left: Trace, floor: Floor, narrow: float, worst: Sequence[Worst], name: str) -> str | None:
    """Say which noise would hide a fault: runs are further apart than a floor as wide allows, or any are."""
    off = {one.kind: one.distance_over_floor for one in worst}
    widths = {"gradient": gradient_width(left, floor), "update": update_width(left, floor)}
    updates = LOST / widths["update"] if widths["update"] else INFINITE
    wide = None
    if updates < APART or off.get("update", 0.0) > updates:
        wide = "update"
    elif narrow < _NARROWEST or max(off.values(), default=0.0) > narrow:
        wide = "gradient"
    if wide is None:
        return None
    at = "the first step of a window" if left.layout.window else f"step {left.layout.steps[0]}"
    noise = f"the {wide}s of {name}'s twins are" if floor.calibrated else f"without twins, {wide}s may be"
    return f"the noise floor is too wide to prove anything: {noise} {exact(widths[wide], 2)} apart at {at}"


def hardly_apart(left: Trace, right: Trace, worst: Sequence[Worst]) -> bool:
    """Tell whether runs are so near that no floor has to tell rounding from a fault, as with a fused optimizer."""
    off = max((one.distance_over_floor for one in worst), default=0.0)
    whole = max(float(distances(left, right, kind)[:, -1].amax()) for kind in ("gradient", "update"))
    return off <= _HARDLY_APART and whole <= _HARDLY
