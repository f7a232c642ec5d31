"""The table of `trainparity check`: one row a candidate."""

from trainparity.records.numbers import NOTHING
from trainparity.records.verdict import Verdict
from trainparity.report.columns.column import Column

Candidate = tuple[str, Verdict]


def _curves(row: Candidate) -> str:
    return row[1].curves.verdict if row[1].curves else NOTHING


CANDIDATES: tuple[Column[Candidate], ...] = (
    Column(heading="candidate", text=lambda row: row[0], numeric=False),
    Column(heading="verdict", text=lambda row: row[1].outcome, style=lambda row: row[1].outcome, numeric=False),
    Column(
        heading="distance / floor",
        text=lambda row: row[1].multiple,
        fields={"distance_over_floor": lambda row: row[1].distance_over_floor},
    ),
    Column(heading="cause", text=lambda row: row[1].cause or NOTHING, numeric=False),
    Column(heading="learns as fp32", text=_curves, style=_curves, numeric=False),
)
"""One entry is a column of the console's table."""
