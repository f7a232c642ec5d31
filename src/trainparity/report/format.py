"""Numbers as people read them."""

from typing import Any

from trainparity.records.numbers import NOTHING, exact, number
from trainparity.report.schema import Speedup


def speedup(value: Speedup | None) -> str:
    """Write a speed-up and its interval: `1.23× (1.20–1.27)`."""
    if value is None:
        return NOTHING
    return f"{value.ratio:.2f}× ({value.low:.2f}–{value.high:.2f})"


def span(low: float | None, high: float | None) -> str:
    """Write a range of numbers: `38.4–42.1`."""
    return f"{number(low)}–{number(high)}"


def evidence(value: Any) -> str:
    """Write a value of a verdict's evidence; of a list the first eight."""
    if isinstance(value, list):
        return ", ".join(evidence(item) for item in value[:8]) + (", ..." if len(value) > 8 else "")
    return exact(value) if isinstance(value, float) else str(value)


def sentence(text: str) -> str:
    """End a text with a full stop; how it begins stays, as that may be a name."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def fixed(value: float, decimals: int) -> str:
    """Write a number with so many digits after the point."""
    return f"{value:.{decimals}f}"


def mebibytes(value: int) -> str:
    """Write a size: `81,920 MiB`."""
    return f"{value:,} MiB"


def rate(value: float | None) -> str:
    """Write floating-point operations per second with the unit's prefix: `12.3 GFLOP/s`."""
    if value is None:
        return NOTHING
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{number(value)} {prefix}FLOP/s"
        value /= 1000
    return f"{number(value)} PFLOP/s"


def percent(value: float | None) -> str:
    """Write a fraction of 1 as a percentage."""
    return NOTHING if value is None else f"{100 * value:.0f} %"


def moment(iso: str | None) -> str:
    """Write an ISO 8601 moment in UTC to the minute: `2026-03-01 12:30`."""
    return NOTHING if iso is None else iso[:16].replace("T", " ")


def joined(words: list[str]) -> str:
    """Write a list in words: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
