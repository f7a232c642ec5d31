"""The answer of `trainparity check`."""

from trainparity.records.base import Record
from trainparity.records.verdict import Verdict


class CheckReport(Record):
    """The verdicts on all candidates, each against the reference of its own precision."""

    workload: str
    margin: float
    results: dict[str, Verdict]
    """By candidate."""

    @property
    def exit_code(self) -> int:
        """1 if any candidate is another training, else 2 if any could not be judged, else 0."""
        codes = [result.exit_code for result in self.results.values()]
        return 1 if 1 in codes else max(codes, default=0)

    def __bool__(self) -> bool:
        """Tell whether every candidate is the same training."""
        return self.exit_code == 0
