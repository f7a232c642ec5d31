"""The table of a study's claims: what was published, and what was measured."""

from trainparity.records.claims import ClaimResult
from trainparity.report.columns.column import Column, at

CLAIMS: tuple[Column[ClaimResult], ...] = (
    Column(
        heading="claim",
        text=at("name"),
        note=at("statement"),
        numeric=False,
        places=("page",),
        fields={"name": at("name"), "statement": at("statement")},
    ),
    Column(heading="claim", text=lambda c: f"{c.name}: {c.statement}", numeric=False, places=("console",)),
    Column(
        heading="published",
        text=at("published"),
        numeric=False,
        fields={"published": at("published"), "figure": at("figure")},
    ),
    Column(
        heading="measured",
        text=lambda claim: claim.measured or claim.reason or "",
        note=lambda claim: claim.remark or "",
        numeric=False,
        fields={"measured": at("measured"), "value": at("value"), "reason": at("reason"), "remark": at("remark")},
    ),
    Column(
        heading="measured on",
        text=lambda claim: claim.hardware or "",
        numeric=False,
        places=("page",),
        fields={"hardware": at("hardware")},
    ),
    Column(
        heading="verdict",
        text=at("verdict"),
        style=at("verdict"),
        numeric=False,
        fields={"verdict": at("verdict")},
    ),
)
"""One entry is a column of the console's table, of the page's and of claims.csv."""
