"""What two runs computed with, and which files of their own code: what may part them though nobody changed the loop."""

from trainparity.parity.recording.code import edited
from trainparity.parity.recording.conditions import REDUCTION, differing
from trainparity.parity.recording.formats import name_of
from trainparity.parity.recording.trace import Layout
from trainparity.records.names import some
from trainparity.records.numbers import exact


def other_surroundings(left: Layout, right: Layout, names: tuple[str, str]) -> list[str]:
    """Name the conditions in which two runs of these names differ, and the code that they do not share."""
    changed = edited(left.code, right.code)
    code = [f"code: another {some(changed)}"] if changed else []
    return [*differing(*_conditions(left, right), names), *code]


def _conditions(left: Layout, right: Layout) -> tuple[dict[str, str], dict[str, str]]:
    """Return what both runs computed with; the format of the loss where both are known.

    Where nothing sets a format for the reduction gradients are added up as they are stored.
    """
    ours, theirs = dict(left.environment), dict(right.environment)
    if REDUCTION in ours or REDUCTION in theirs:
        for layout, one in ((left, ours), (right, theirs)):
            one.setdefault(REDUCTION, name_of(layout.stored_roundoff))
    if all(units := (left.loss_roundoff, right.loss_roundoff)):
        ours["loss"], theirs["loss"] = (f"rounds to {exact(unit, 2)} of itself" for unit in units)
    return ours, theirs
