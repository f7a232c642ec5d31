"""What steps that were made before recording began, as of a run that is resumed, may have parted by rounding alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainparity.parity.difference import Difference


def left_to_rounding(difference: "Difference") -> list[str]:
    """Return the parameters that begin apart though nothing but rounding moves them.

    As the bias of attention's keys, whose gradient is nothing else: Adam makes whole steps of it.
    """
    before = [bool(trace.arrays["state/norm"][0].any()) for trace in difference.traces]
    if difference.row or not any(before):
        return []
    return difference.named(difference.margin * difference.floor["update"][0, :-1] > 1)
