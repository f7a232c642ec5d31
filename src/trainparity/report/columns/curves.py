"""The table of a judgement on learning curves."""

from trainparity.records.curves import CurveResult
from trainparity.records.numbers import NOTHING, number
from trainparity.report.columns.column import Column, at


def _final(result: CurveResult) -> str:
    return " and ".join(map(number, result.final)) if result.final else NOTHING


CURVES: tuple[Column[CurveResult], ...] = (
    Column(heading="verdict", text=at("verdict"), style=at("verdict"), numeric=False),
    Column(heading="runs", text=lambda result: " and ".join(map(str, result.runs))),
    Column(heading="final loss", text=_final),
    Column(heading="spread over seeds", fields={"spread": at("spread")}),
    Column(heading="p", fields={"p_value": at("p_value")}),
)
"""One entry is a column of the Markdown table."""
