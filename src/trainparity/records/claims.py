"""`reports/claims.json`: a study's published figures beside ours."""

from typing import Literal

from trainparity.records.base import Record


class ClaimResult(Record):
    """A published figure and what was measured for it."""

    name: str
    """As in claims.yaml."""
    statement: str
    """What the article says."""
    published: str
    """Its figure, with its hardware."""
    measured: str | None
    """Ours, with its unit; null if nothing could be measured; of a claim not measurable here it is of another scale."""
    value: float | None = None
    """The same as a number, where it is one and finite."""
    figure: float | None = None
    """The published figure as a number in the same unit; null where none was published."""
    low: float | None = None
    """What `value` must be at least for the claim to be confirmed."""
    high: float | None = None
    """What `value` must be at most."""
    verdict: Literal["confirmed", "not confirmed", "not measurable here"]
    """The outcome."""
    reason: str | None = None
    """Why it is not measurable here."""
    remark: str | None = None
    """What the verdict does not say, for example that the scale is another than the article's."""
    hardware: str | None
    """What the figure was measured on; null where it is not one of time or memory."""

    @property
    def absent(self) -> bool:
        """Whether nothing could be measured."""
        return self.measured is None


class ClaimReport(Record):
    """All claims of a study."""

    study: str
    """The study's folder."""
    scale: str | None
    """The scale in force."""
    dataset: str
    """What was trained on; other data than the article's is named as such in the remarks."""
    environment: str
    """The machine in a few words."""
    fingerprint: str
    """Of the environment."""
    date: str
    """Of the youngest figure, ISO 8601, UTC; empty if nothing was timed."""
    results: list[ClaimResult]
    """One for each claim of claims.yaml."""
