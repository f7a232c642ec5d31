"""`benchmarks/results/controls.json`: how the checker did on loops that are known to be right or wrong."""

from trainparity.records.base import Record


class ControlResult(Record):
    """What the checker said of one control over models and seeds."""

    name: str
    what: str
    """How it comes about, in one sentence."""
    expected: str | None
    """The cause that must be named; null if the loop is right and must not be called different."""
    models: list[str]
    ranks: int
    trials: int
    different: int
    """Trials with the verdict `different`: caught if it is wrong, false alarms if it is right."""
    not_judged: int
    """Trials that could not be judged."""
    causes: dict[str, int]
    """How often each cause was named."""
    smallest: float | None
    """Smallest distance over floor of the trials."""
    largest: float | None

    @property
    def named(self) -> int:
        """Trials that were given exactly their cause."""
        return self.causes.get(self.expected or "", 0)

    @property
    def misnamed(self) -> int:
        """Trials that were given another cause; `unknown` is none."""
        return self.different - self.named - self.causes.get("unknown", 0)


class ControlReport(Record):
    """The negative and positive controls of the checker."""

    date: str
    fingerprint: str
    """Of the environment."""
    machine: str
    torch: str
    seeds: int
    controls: list[ControlResult]

    @property
    def passed(self) -> bool:
        """Every wrong one caught, at least nine in ten named, none misnamed, and no false alarm."""
        wrong = [control for control in self.controls if control.expected]
        caught = all(control.different == control.trials for control in wrong)
        named = sum(control.named for control in wrong) >= 0.9 * sum(control.trials for control in wrong)
        alarms = sum(control.different + control.not_judged for control in self.controls if not control.expected)
        return caught and named and not alarms and not sum(control.misnamed for control in wrong)
