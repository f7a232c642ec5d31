"""The answer of `trainparity check`."""

from trainparity.records.base import Record
from trainparity.records.curves import CurveResult
from trainparity.records.verdict import PairResult


class CheckResult(Record):
    """What `trainparity check` says of one candidate."""

    pair: PairResult
    """Against the reference of its own precision."""
    curves: CurveResult | None = None
    """Its precision against fp32, by learning curves over seeds."""

    @property
    def exit_code(self) -> int:
        """0 for the same training, 1 for another, 2 if that cannot be said."""
        if self.pair.verdict == "different" or (self.curves and self.curves.verdict == "drifted"):
            return 1
        unclear = self.pair.verdict in ("skipped", "failed") or (self.curves and self.curves.verdict == "cannot judge")
        return 2 if unclear else 0


class CheckReport(Record):
    """The answer of `trainparity check`."""

    workload: str
    margin: float
    results: list[CheckResult]

    @property
    def exit_code(self) -> int:
        """1 if any candidate is another training, else 2 if any could not be judged, else 0."""
        codes = [result.exit_code for result in self.results]
        return 1 if 1 in codes else max(codes, default=0)
