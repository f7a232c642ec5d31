"""`runs/known-answer/result.json`: a published result computed again."""

from pathlib import Path

from trainparity.records.base import Record

STUDY = Path("studies/ddp-vs-accumulation")
"""Whose claim it is; only the default pipeline has this folder below its own."""


class KnownAnswer(Record):
    """A published result computed again before our own verdicts are to be believed."""

    claim: str
    """Its name in the study's claims.yaml."""
    published: list[float]
    """The published weights."""
    decimals: int
    """Digits after the point that were published."""
    measured: dict[str, list[float]]
    """Weights by configuration."""
    largest_difference: float
    """Between the configurations, absolute."""
    reproduced: bool
    """Whether every configuration has the published digits."""
