"""What `trainparity ab` asks further of two commands that are different."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainparity.records.operators import FirstOperator, OperatorLog
from trainparity.records.verdict import Verdict
from trainparity.running.ab import OF_COMPUTATION, finer, judged_in_float64, second_opinion, switched
from trainparity.running.command import Command, Runner
from trainparity.running.operators import first_operator
from trainparity.running.record import Settings, say


@dataclass(frozen=True)
class Questions:
    """Asks by further runs; each answer is a verdict with one field more."""

    runner: Runner
    commands: tuple[Command, Command]
    place: Path
    """Where both are recorded, as `a` and `b`."""
    settings: Settings
    margin: float

    def judge(self, left: Path, right: Path) -> Verdict:
        """Judge two recorded runs, which the commands' output calls A and B."""
        from trainparity.parity.compare import compare_folders  # imports torch

        return compare_folders(left, right, margin=self.margin, names=("A", "B"))

    def equal(self, left: Path, right: Path) -> bool:
        """Tell whether two recorded runs are equal in every bit."""
        return self.judge(left, right).verdict == "bitwise"

    def where_it_can_be_judged(self, verdict: Verdict) -> tuple["Questions", Verdict]:
        """Judge both in float64 where the noise floor, or a coarse format, may hide what they do.

        And where right runs do not lie as far apart. What is asked further is asked there.
        """
        from trainparity.parity.recording.formats import rounds_more_than_fp32  # imports torch

        coarse = verdict.verdict == "equivalent" and any(map(rounds_more_than_fp32, self._precisions()))
        if not (verdict.hidden_by_floor or verdict.may_hide_a_fault(coarse=coarse, float64=self.settings.float64)):
            return self, verdict
        there = replace(self, place=self.place / "float64", settings=finer(self.settings, verdict))
        found = judged_in_float64(self.runner, self.commands, there.place, there.settings, verdict, self.judge)
        return (self if found.verdict == verdict.verdict else there), found

    def in_float64(self, verdict: Verdict) -> Verdict:
        """Ask whether the difference stays in float64, where no plain cause was found."""
        if verdict.cause not in OF_COMPUTATION or self.settings.float64:
            return verdict
        asked = self.runner, self.commands, self.place, self.settings
        return second_opinion(*asked, verdict, self.judge, single=self._precisions() == {"fp32"})

    def by_operator(self, verdict: Verdict) -> Verdict:
        """Ask for the first operator that returns something else."""
        from trainparity.parity.operators import cut_alike  # imports torch

        if verdict.step is None:
            return verdict
        if not cut_alike(self.place / "a", self.place / "b"):
            say("the runs cut their batches otherwise, so their operators can't be compared")
            return verdict
        found = first_operator(self.runner, self.commands, self.settings, verdict.step, self._first)
        if found is None:
            say(f"no operator that both runs have in step {verdict.step} is beyond its floor")
        return verdict.model_copy(update={"operator": found})

    def by_setting(self, verdict: Verdict) -> Verdict:
        """Ask which of the options that differ it is."""
        which = switched(self.runner, self.commands, self.place, self.settings, self.judge)
        return verdict.model_copy(update={"bisection": which})

    def _precisions(self) -> set[str]:
        """Return the formats that both compute in."""
        from trainparity.parity.recording.trace import Layout  # imports torch

        return {Layout.read(path).precision for side in ("a", "b") for path in (self.place / side).rglob("trace.json")}

    def _first(self, left: OperatorLog, right: OperatorLog, twins: Sequence[OperatorLog]) -> FirstOperator | None:
        from trainparity.parity.operators import first_operator  # imports torch

        return first_operator(left, right, twins, self.margin)
