"""How many units what comes back to a module differs by, as the sketch of the difference shows."""

from collections.abc import Sequence

from torch import Tensor


def is_one_unit(places: Sequence[frozenset[int]]) -> bool:
    """Tell whether it is the same unit, by the places that its numbers have, in each of several steps."""
    return len(places) >= _SEVERAL and all(len(each & places[0]) >= _SHARED for each in places)


def is_of_few(differs: Tensor, signs: int, turned: int, rest: float) -> bool:
    """Tell whether a sketch [SKETCH] may be that of one unit, or two, and of those that turn for parted weights.

    Args:
        differs: The sketch, of which each unit has `signs` numbers, at random places and of random signs.
        signs: So many.
        turned: Units besides; no sketch tells so many of them that they fill half of it.
        rest: How long what other numbers have may be: rounding, and what is of parted weights.
    """
    if signs == len(differs):  # of one unit all have one size, of two that are as large as each other half have none
        return turned > 0 or float(differs.square().mean() ** 2 / differs.pow(4).mean()) >= _OF_ONE_SIZE
    shown = _OF_TWO + turned * signs
    squares = differs.square().sort(descending=True).values
    beside = float(squares[shown:].sum())
    return 2 * shown > len(differs) or beside <= max((1 - _NEARLY_ALL) * float(squares.sum()), rest**2)


OF_ONE, _SHARED = 8, 6
"""Numbers of a sketch that a unit has, and those that are among its largest again."""

_SEVERAL = 3
"""Steps, from the first that jumps, in which one unit alone turns only by a fault."""

_OF_TWO = 2 * OF_ONE
"""Numbers of a sketch that two units have: so many turn in one module and step at most, before weights are parted."""

_OF_ONE_SIZE = 0.45
"""Square of a mean square by the mean fourth power: 1 of one size, 1/2 where half of them are zero, 1/3 of chance."""

_NEARLY_ALL = 0.97
"""Part of the square of a difference that these make up; a quarter of a sketch that is full has 0.7."""
