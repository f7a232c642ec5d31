"""`reports/curves.json`: the verdicts on learning curves over seeds."""

from typing import Literal

from trainparity.records.base import Record
from trainparity.records.numbers import exact, number


class CurveResult(Record):
    """Do two recipes learn alike? About learning curves over seeds; no proof that a step is the same."""

    verdict: Literal["consistent", "drifted", "cannot judge", "skipped", "failed"]
    """`consistent`: they learn alike; `failed`: a run crashed."""
    reason: str | None = None
    """Why it cannot be judged, what diverged, or why a run did not train."""
    runs: list[int]
    """Runs of each recipe."""
    losses: list[int] | None = None
    """How many each run of a recipe has; parts of runs are compared, whatever their lengths. Null: not read."""
    level: float
    """Chance of calling curves of one recipe `drifted`."""
    p_value: float | None = None
    """Of the permutation test."""
    statistic: float | None = None
    """Largest difference of means over ten parts of the run, in pooled standard deviations over seeds."""
    final: list[float] | None = None
    """Mean loss of the last part of each recipe's runs."""
    spread: float | None = None
    """Standard deviation of the reference's final loss over seeds."""
    detectable: float | None = None
    """Shift, in standard deviations over seeds, that would have been found with probability 0.8; null: above 8."""

    @property
    def exit_code(self) -> int:
        """0 if the recipes learn alike, 1 if not, 2 for everything else."""
        return {"consistent": 0, "drifted": 1}.get(self.verdict, 2)

    @property
    def sentence(self) -> str:
        """Say it in one sentence, with the test's power."""
        if self.final is None or self.p_value is None or self.spread is None:
            return self.reason or self.verdict
        power = f"{number(self.detectable)}" if self.detectable is not None else "more than 8"
        lengths = self.losses or [0, 0]
        apart = f", of {lengths[0]} and {lengths[1]} losses a run" if lengths[0] != lengths[1] else ""
        return (
            f"{self.verdict}: final loss {exact(self.final[0], 4)} and {exact(self.final[1], 4)}{apart}, "
            f"spread over seeds {exact(self.spread, 2)}, p = {exact(self.p_value, 2)} "
            f"(permutation test, {self.runs[0]} and {self.runs[1]} runs; "
            f"it finds shifts of {power} spreads with probability 0.8)"
        )


class CurveReport(Record):
    """The verdicts on learning curves, by their entry of `curves` in params.yaml."""

    results: dict[str, CurveResult]
