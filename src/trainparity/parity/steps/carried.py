"""What steps before have made otherwise, within the floor, and a forward pass carries on."""

from trainparity.parity.noise.distance import Compared, names
from trainparity.parity.recording.names import module_of
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.sketch_pairs import Pairs


def carried_on(difference: Difference, first: str) -> list[str]:
    """Return the weights and buffers of a module that are about as far apart as what it returns is.

    Args:
        difference: Of the runs, at a step.
        first: The first activation that is off.
    """
    row = difference.row
    if not row or first not in difference.chain.names:
        return []
    [apart] = Pairs(difference, "activation", [first]).distances()
    kinds: tuple[tuple[Compared, int], ...] = (("start", row), ("buffer", row - 1))
    return [
        name
        for kind, at in kinds
        for name, off in zip(names(difference.left, kind), difference.distances(kind)[at].tolist(), strict=True)
        if name.startswith(f"{module_of(first)}.") and apart <= _CARRIED * off
    ]


_CARRIED = 8
"""How many times further apart than a module's weights what it returns may be for that alone."""
