"""Whether a noise floor is too wide to prove that two runs are the same training."""

from collections.abc import Sequence

import torch

from trainparity.parity.noise.distance import distances, names
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.margin import is_coarse
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


def too_wide(left: Trace, right: Trace, floor: Floor, narrow: float, worst: Sequence[Worst], name: str) -> str | None:
    """Say which noise would hide a fault: runs are further apart than a floor as wide allows, or any are."""
    if another := _another_update(left, right, floor):
        return another
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


def _another_update(left: Trace, right: Trace, floor: Floor) -> str | None:
    """Name an update of many numbers that is another one, further than twins', where the margin excuses a lost one.

    In a coarse format, as of queries and keys: what is left of a small gradient beside noise, an optimizer like Adam
    makes as long as all else. Of so many numbers distances vary little: of 181 right runs none was as far as twins.
    """
    if not is_coarse(left.layout) or not floor.calibrated:
        return None
    apart, limit = distances(left, right, "update")[:, :-1], floor["update"][:, :-1]
    many = torch.tensor([numbers >= _MANY for numbers in left.layout.numbers().values()])
    found = (many & (apart > LOST / 2) & (apart > APART * limit)).nonzero().tolist()
    if not found:
        return None
    row, column = found[0]
    return (
        f"the noise floor is too wide for update {names(left, 'update')[column]}: it is "
        f"{exact(float(apart[row, column]), 2)} of its length apart at step {left.layout.steps[row]}, and twins' "
        f"{exact(float(limit[row, column]), 2)}"
    )


_MANY = 512
"""Numbers of a parameter of which twins' distances are no matter of chance."""


def hardly_apart(left: Trace, right: Trace, worst: Sequence[Worst]) -> bool:
    """Tell whether runs are so near that no floor has to tell rounding from a fault, as with a fused optimizer."""
    off = max((one.distance_over_floor for one in worst), default=0.0)
    whole = max(float(distances(left, right, kind)[:, -1].amax()) for kind in ("gradient", "update"))
    return off <= _HARDLY_APART and whole <= _HARDLY
