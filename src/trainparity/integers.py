"""Integers that a program is given as arguments."""

import operator
from typing import Any


def integer(name: str, value: Any, least: int) -> int:
    """Return an argument that must be an integer, of Python or NumPy.

    Raises:
        TypeError: it is none.
        ValueError: it is less than `least`, or has more than 63 bits.
    """
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be an integer")
    if not least <= found < 2**63:
        raise ValueError(f"{name} is {found}; it must be at least {least}" + (" and below 2**63" if found > 0 else ""))
    return found
