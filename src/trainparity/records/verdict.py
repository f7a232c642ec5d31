"""`reports/parity.json`: the verdicts on pairs of runs."""

from typing import Any, Literal

from pydantic import Field

from trainparity.records.base import Record

Verdict = Literal["bitwise", "equivalent", "different", "skipped", "failed"]
SAME_TRAINING: tuple[Verdict, ...] = ("bitwise", "equivalent")


class Worst(Record):
    """The largest distance over floor of one kind of tensor in one pair."""

    kind: Literal["gradient", "update", "weight", "buffer"]
    distance_over_floor: float
    distance: float
    """Relative L2 distance."""
    floor: float
    step: int
    tensor: str
    """A parameter's or buffer's name, or `(all)` for all of them together."""


class PairResult(Record):
    """The verdict on one pair."""

    name: str
    left: str
    right: str
    verdict: Verdict
    reason: str | None = None
    """Why it was skipped, failed or can't be equal; of `different` where it is."""
    cause: str | None = None
    """Of `different`: an identifier of docs/verdict.md, `unknown` where no test proves one."""
    explanation: str | None = None
    """The cause in one sentence."""
    advice: str | None = None
    """What to change, in one sentence."""
    evidence: dict[str, Any] = Field(default_factory=dict)
    """The numbers that prove the cause; of an unknown cause, what was measured."""
    confirmation: str | None = None
    """What a further run with that one factor fixed, or in float64, has shown."""
    weights: Literal["bitwise", "equivalent", "different"] | None = None
    """The verdict on gradients, updates and weights alone, without buffers."""
    distance_over_floor: float | None = None
    """Largest over every kind, tensor and step; null unless judged. Infinity is written as 1e300."""
    calibrated: bool = True
    """Whether the floor was measured on twins; else it is an analytic bound."""
    first_step: int | None = None
    """First optimizer step (from 0) beyond the margin; null if none."""
    first_tensor: str | None = None
    """Where it is beyond first: an activation in forward order, a gradient in backward order, or the update."""
    worst: list[Worst] = Field(default_factory=list)
    ranks_agree: bool = True
    """Whether all ranks of both runs held the same parameters after every step."""


class Comparison(Record):
    """The answer of `trainparity compare`, and its JSON."""

    left: str
    right: str
    verdict: Literal["bitwise", "equivalent", "different", "cannot judge"]
    reason: str | None = None
    """Where it differs, or why it cannot be judged."""
    cause: str | None = None
    explanation: str | None = None
    advice: str | None = None
    step: int | None = None
    """First optimizer step (from 0) beyond the margin."""
    tensor: str | None = None
    distance_over_floor: float | None = None
    margin: float
    calibrated: bool = True
    """Whether twins measured the floor; if not, it is an analytic bound, and so much less to be trusted."""
    weights: str | None = None
    """The verdict on gradients, updates and weights alone, without buffers."""
    steps_compared: int = 0
    evidence: dict[str, Any] = Field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 for the same training, 1 for another, 2 if that cannot be said."""
        return {"bitwise": 0, "equivalent": 0, "different": 1}.get(self.verdict, 2)


class ParityReport(Record):
    """All verdicts, and the distances over steps behind them."""

    margin: float
    pairs: list[PairResult]

    def against(self, run: str, *references: str) -> PairResult | None:
        """Return the pair that holds a run against one of these names of its reference."""
        return next((pair for pair in self.pairs if pair.right == run and pair.left in references), None)
