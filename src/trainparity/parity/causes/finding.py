"""What a test for a cause returns."""

from dataclasses import dataclass, field
from typing import Literal

Cause = Literal[
    "loss-normalisation",
    "learning-rate",
    "samples",
    "batchnorm-statistics",
    "buffers-only",
    "ranks-disagree",
    "gradients-not-zeroed",
    "clipping",
    "grad-scaler",
    "randomness",
    "precision",
    "optimizer-state",
    "weights-not-loaded",
    "frozen-parameter",
    "parameters-not-updated",
    "schedule",
    "eval-mode",
    "unknown",
]

Evidence = dict[str, float | int | str | bool | list[float] | list[str]]


@dataclass(frozen=True)
class Finding:
    """A cause that the evidence proves."""

    cause: Cause
    why: str
    """What is wrong, in one sentence."""
    advice: str
    """What to change, in one sentence."""
    evidence: Evidence = field(default_factory=dict)
    """The numbers that prove it."""


def some(names: list[str], most: int = 3) -> str:
    """Name a few of many."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
