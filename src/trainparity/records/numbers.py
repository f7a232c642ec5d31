"""Numbers as people read them, in every sentence, table and page."""

import math

from trainparity.records.base import INFINITE

NOTHING = "–"


def number(value: float | None) -> str:
    """Write a number with three significant digits: 0.123, 1.23, 12.3, 123, 12,346, 1.2e-7."""
    if value is None:
        return NOTHING
    if math.isnan(value):
        return "not a number"
    size = abs(value)
    if size >= INFINITE:
        return "∞" if value > 0 else "-∞"
    if size >= 1e7 or 0 < size < 1e-3:
        return _short(f"{value:.1e}")
    if size >= 99.95:
        return f"{value:,.0f}"
    if size == 0 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.{1 if size >= 9.995 else 2 if size >= 0.9995 else 3}f}"


def exact(value: float, digits: int = 6) -> str:
    """Write a number with so many significant digits, for evidence and what is compared digit by digit: 1.23457e-7."""
    if abs(value) >= INFINITE:
        return number(value)
    return _short(f"{value:.{digits}g}")


def counted(count: int, name: str) -> str:
    """Write how many there are of something: 1 sample, 2 samples."""
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _short(text: str) -> str:
    """Write an exponent without a plus and without leading zeros."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text
