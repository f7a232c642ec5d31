"""Whether a noise floor is too wide to prove that two runs are the same training."""

from collections.abc import Sequence

import torch

from trainparity.parity.noise.distance import distances, names, norms, sizes
from trainparity.parity.noise.floor import NOTHING_ELSE, Floor
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
    if unknown := _another_update(left, right, floor) or _chance_alone(left, floor):
        return unknown
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
    many = sizes(left.layout) >= _MANY
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


def _chance_alone(left: Trace, floor: Floor) -> str | None:
    """Name a weight whose gradient rounding alone makes where a window begins, though it is no small part of all.

    As of a spatial transformer that begins as the identity: each of its places lies at a kink. The rest of the gradient
    hides how wide that is. What is nothing but rounding by right, as a bias in front of a normalisation, is no part of
    all; of 235 references in fp32 none else had as much as 0.1 % of its gradient so wide.
    """
    if is_coarse(left.layout) or not floor.calibrated:
        return None
    begins = left.layout.rows_that_begin()
    lengths = norms(left, "gradient")[begins]
    several = sizes(left.layout) >= _SEVERAL
    large = lengths > _NO_SMALL_PART * torch.linalg.vector_norm(lengths, dim=1, keepdim=True)
    widths = floor["gradient"][begins][:, :-1]
    found = (several & large & (widths >= NOTHING_ELSE)).nonzero().tolist()
    if not found:
        return None
    row, column = found[0]
    return (
        f"the noise floor is too wide for gradient {names(left, 'gradient')[column]}: twins' are "
        f"{exact(float(widths[row, column]), 2)} of its length apart at step {left.layout.steps[begins[row]]}"
    )


_SEVERAL, _NO_SMALL_PART = 64, 0.01
"""Numbers of a weight, and the part of the whole gradient's length, from which that is told."""


def hardly_apart(left: Trace, right: Trace, worst: Sequence[Worst]) -> bool:
    """Tell whether runs are so near that no floor has to tell rounding from a fault, as with a fused optimizer."""
    off = max((one.distance_over_floor for one in worst), default=0.0)
    whole = max(float(distances(left, right, kind)[:, -1].amax()) for kind in ("gradient", "update"))
    return off <= _HARDLY_APART and whole <= _HARDLY
