"""What parts the weights that a step starts from: another checkpoint, or what a loop writes between two steps."""

import torch
from torch import Tensor

from trainparity.parity.causes.facts import state_norms
from trainparity.parity.causes.precision import stored_alike
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.updates import traced_since


def another_base(difference: Difference) -> bool:
    """Tell whether a run begins with other frozen weights, and gradients are further apart than twins' are.

    Weights that are frozen are none of the training, and a coarse format's floor may hide what they make.
    """
    if difference.row or difference.distance("gradient") <= difference.noise("gradient"):
        return False
    frozen = set(difference.named(torch.logical_and(*difference.at("frozen")))) & set(difference.beyond["start"])
    return bool(frozen) and not stored_alike(difference)


def _made_otherwise(difference: Difference) -> list[str]:
    """Return the parameters that a training begins with that are other ones by more than how they are stored.

    Where it computes in a coarse format, twins are moved by as much as that rounds, and those of one checkpoint or
    seed are not. After earlier steps, which nobody has recorded, rounding may have parted them.
    """
    layouts = [trace.layout for trace in difference.traces]
    if difference.row or any(layout.steps[0] for layout in layouts) or not is_coarse(layouts[0]):
        return []
    stored = [layout.stored() for layout in layouts]
    earlier = (*difference.numbers("optimizer_step"), *difference.numbers("sequence"), *state_norms(difference))
    if stored[0] != stored[1] or any(earlier):
        return []
    units = torch.tensor(list(stored[0].values()), dtype=torch.float64)
    starts = [trace.arrays["start/sketch"] for trace in difference.traces]
    moves = torch.stack([(of_run != of_run[:1]).any(2).any(0) for of_run in starts]).any(0)
    trained = torch.logical_or(*difference.at("held")) | moves  # the rest is none of the training
    other = difference.named((difference.distances("start")[0, :-1] > _ROUNDINGS * units) & trained)
    with_another_optimizer = {name for layout in layouts for name in layout.trained_before}
    return [name for name in other if name not in with_another_optimizer]


_ROUNDINGS = 64
"""Unit roundoffs by which a weight is another one, though another device may have computed it."""


def _written_otherwise(difference: Difference) -> list[str]:
    """Return the parameters that a loop writes between two steps with other values than the other loop does.

    In a coarse format their floor may hide it. All weights had the same bits until then, so no rounding parts them.
    """
    rows = traced_since(difference) if is_coarse(difference.left.layout) else None
    if rows is None or not difference.goes_on:
        return []
    before = slice(rows.start, rows.stop - 1)
    if any(bool(difference.distances(kind)[before].any()) for kind in ("start", "weight")):
        return []
    units = torch.tensor([list(trace.layout.stored().values()) for trace in difference.traces]).amax(0).double()
    apart = difference.distances("start")[difference.row, :-1]
    part = apart * difference.norms("start")[0] / _lengths_written(difference)
    other = (apart > _WRITTEN * units) | ((apart > _OTHER_ROUNDINGS * units) & (part > _OTHER_PART))
    return difference.named(other & torch.logical_and(*difference.at("held")))


def _lengths_written(difference: Difference) -> Tensor:
    """Return how far the reference's loop moves each parameter between the step before and this one: float64 [P]."""
    sketches = difference.left.arrays
    moved = sketches["start/sketch"][difference.row] - sketches["weight/sketch"][difference.row - 1]
    lengths: Tensor = torch.linalg.vector_norm(moved, dim=1).double()
    return lengths


_WRITTEN = 1024
"""Unit roundoffs that two forms of one formula do not write apart; 100 were seen, of two ways to a polar factor."""

_OTHER_ROUNDINGS, _OTHER_PART = 16, 1 / 8
"""Unit roundoffs from which on another part of the little that is written is no rounding, as of a decay by hand."""


def plainly_other(difference: Difference) -> list[str]:
    """Return the parameters that are other ones than their storage rounds, where no earlier step has parted them."""
    return _made_otherwise(difference) or _written_otherwise(difference)


def moved_between_steps(difference: Difference) -> set[str]:
    """Return the parameters that do not start from what the traced step before has left; at the first step all.

    Others are apart since that step, by what its floor excused; or another optimizer has moved them in both runs.
    """
    row = difference.row
    if row == 0:
        counts = difference.numbers("sequence")
        held = torch.logical_or(*difference.at("held"))
        # Another optimizer may have moved the rest by then.
        return set(difference.left.layout.parameters if counts[0] == counts[1] else difference.named(held))
    moved = [moved_since(trace, row) != 0 for trace in difference.traces]  # NaN too
    of_another = moved[0] & moved[1] & ~torch.logical_or(*difference.at("held"))
    return set(difference.named((moved[0] | moved[1]) & ~of_another))


def moved_since(trace: Trace, row: int) -> Tensor:
    """Return by how much weights have changed since the traced step before has left them: relative, float64 [P]."""
    start, left = trace.arrays["start/sketch"][row], trace.arrays["weight/sketch"][row - 1]
    apart = torch.linalg.vector_norm(start - left, dim=1)
    return torch.where(apart == 0, 0.0, apart / torch.linalg.vector_norm(left, dim=1))


def starts_elsewhere(trace: Trace, row: int) -> Tensor:
    """Return the weights that start a step with other values than the traced step before: bool [P]."""
    started = trace.arrays["start/sketch"]
    return (started[row] != started[row - 1]).any(1)


def changed_in_one_run(difference: Difference) -> tuple[str, dict[str, float]]:
    """Return a run, and by how much weights change there between two steps, and not in the other: not by rounding.

    Without such a run there are none. Where both loops cut weights off at a limit, rounding chooses the step; then they
    change by no more than the runs were apart before.
    """
    row, layout = difference.row, difference.left.layout
    if not difference.goes_on:
        return "", {}
    left, right = (moved_since(trace, row) for trace in difference.traces)
    stored = [list(trace.layout.stored().values()) for trace in difference.traces]
    rounding = 16 * torch.tensor(stored, dtype=torch.float64).amax(0)
    held = torch.stack([trace.arrays["held"][row - 1 : row + 1].all(0) for trace in difference.traces]).all(0)
    apart = _APART * difference.distances("weight")[row - 1, :-1]
    never = [_never_moved(trace) for trace in difference.traces]
    for in_left, here, there, still in ((True, left, right, never[1]), (False, right, left, never[0])):
        alone = ((here > rounding) & (there == 0) & (still | (here > apart)) & held).tolist()
        every = zip(layout.parameters, alone, here.tolist(), strict=True)
        if found := {name: by for name, changes, by in every if changes}:
            return difference.who(in_left), found
    return "", {}


_APART = 4
"""Times that runs are apart by which cutting weights off moves those of one run alone: once, but for sketches."""


def _never_moved(trace: Trace) -> Tensor:
    """Return the weights that change between no two steps that are traced one after the other: bool [P]."""
    rows = torch.tensor(trace.layout.rows_that_go_on(), dtype=torch.int64)
    return (trace.arrays["start/sketch"][rows] == trace.arrays["weight/sketch"][rows - 1]).all(2).all(0)
