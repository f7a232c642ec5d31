"""`benchmarks/results/controls.json`: how the checker did on loops that are known to be right or wrong."""

from trainparity.records.base import Record


class ControlResult(Record):
    """What the checker said of one control over models and seeds."""

    name: str
    """Of the control."""
    what: str
    """How it comes about, in one sentence."""
    expected: str | None
    """The cause that must be named; null if the loop is right and must not be called different."""
    models: list[str]
    """The models that it was tried on."""
    ranks: int
    """Processes of each run."""
    coarse: bool = False
    """Whether it computes in bf16 or fp16."""
    trials: int
    """Runs: models times seeds."""
    different: int
    """Trials with the verdict `different`: caught if it is wrong, false alarms if it is right."""
    not_judged: int
    """Trials that could not be judged."""
    causes: dict[str, int]
    """How often each cause was named."""
    smallest: float | None
    """Smallest distance over floor of the trials."""
    largest: float | None
    """Largest distance over floor."""

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
    """When (ISO 8601, UTC)."""
    fingerprint: str
    """Of the environment that they ran in."""
    machine: str
    """The processor or GPU."""
    torch: str
    """Version."""
    seeds: int
    """Seeds that each control ran with."""
    controls: list[ControlResult]
    """One for each control."""

    @property
    def passed(self) -> bool:
        """Every wrong one caught, at least nine in ten named, none misnamed, and no false alarm."""
        wrong = [control for control in self.controls if control.expected]
        caught = all(control.different == control.trials for control in wrong)
        named = sum(control.named for control in wrong) >= 0.9 * sum(control.trials for control in wrong)
        alarms = sum(control.different + control.not_judged for control in self.controls if not control.expected)
        return caught and named and not alarms and not sum(control.misnamed for control in wrong)
