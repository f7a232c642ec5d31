"""The numbers that a page's script draws, packed: compressed JSON in base64, in which no text can end a script."""

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from trainparity.records.base import INFINITE
from trainparity.records.detail import COLUMNS, ROWS, Detail, Strip
from trainparity.report.comparison import Comparison
from trainparity.report.curves import Curves
from trainparity.report.trend import over_floor

CELLS = 600_000
"""Numbers in the strips of one page: about 1.5 MB when packed."""

_COARSE, _FINE = 100, 1000
"""Logarithms are kept as whole hundredths, that is to 2 %, those of norms as thousandths."""

_ZERO = -99_999
"""Stands for the logarithm of zero."""


def pack(comparisons: Sequence[Comparison], curves: Curves | None, ratios: Mapping[str, Sequence[float]]) -> str:
    """Return all numbers of a page as text.

    Args:
        comparisons: In the order of their `number`.
        curves: Losses of a pipeline's runs; None on other pages.
        ratios: Speed-ups of pairs of steps, by configuration.
    """
    kinds = sum(len(detail.strips) for one in comparisons for detail in one.details.values())
    rows, columns = _room(CELLS // (4 * max(1, kinds)))
    pairs = [
        {
            "margin": one.verdict.margin,
            "models": [{"name": name, **_detail(detail, rows, columns)} for name, detail in one.details.items()],
        }
        for one in comparisons
    ]
    content = {"pairs": pairs, "curves": curves and curves._asdict(), "ratios": ratios}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _room(cells: int) -> tuple[int, int]:
    """Return the rows and columns of one strip, twice as many columns as rows, that have at most so many cells."""
    rows = max(4, min(ROWS, math.isqrt(cells // 2)))
    return rows, max(8, min(COLUMNS, cells // rows))


def _detail(detail: Detail, rows: int, columns: int) -> dict[str, Any]:
    return {
        "strips": [_strip(strip.condensed(rows, columns)) for strip in detail.strips],
        "steps": detail.steps,
        "facts": [fact.model_dump(mode="json") for fact in detail.facts],
    }


def _strip(strip: Strip) -> dict[str, Any]:
    pairs = [list(zip(*row, strict=True)) for row in zip(strip.distance, strip.floor, strict=True)]
    return {
        "kind": strip.kind,
        "judged": strip.judged,
        "tensors": strip.tensors,
        "steps": strip.steps,
        "ratio": [[_logarithm(over_floor(*cell)) for cell in row] for row in pairs],
        "floor": [[_logarithm(floor) for _, floor in row] for row in pairs],
        "left": [[_logarithm(value, _FINE) for value in row] for row in strip.left_norm],
        "right": [
            [_beside(*cell) for cell in zip(*row, strict=True)]
            for row in zip(strip.left_norm, strip.right_norm, strict=True)
        ],
    }


def _logarithm(value: float | None, parts: int = _COARSE) -> int | None:
    """Return log10 of a number from 0 on, in hundredths unless told otherwise; null of what is not known."""
    if value is None:
        return None
    return round(parts * math.log10(min(value, INFINITE))) if value > 0 else _ZERO


def _beside(left: float | None, right: float | None) -> int | None:
    """Return log10 of right / left, mostly 0, which packs well; of right alone where either has no logarithm."""
    ours, theirs = _logarithm(left, _FINE), _logarithm(right, _FINE)
    return theirs if ours is None or theirs is None or _ZERO in (ours, theirs) else theirs - ours
