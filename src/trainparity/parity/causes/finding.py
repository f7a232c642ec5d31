"""What a rule for a cause is, and what it finds."""

from collections.abc import Callable
from dataclasses import dataclass, field

from trainparity.parity.steps.difference import Difference
from trainparity.records.numbers import exact
from trainparity.records.verdict import Link

Evidence = dict[str, float | int | str | bool | list[float] | list[str]]


@dataclass(frozen=True)
class Finding:
    """A cause that the evidence proves."""

    why: str
    """What is wrong, in one sentence."""
    evidence: Evidence = field(default_factory=dict)
    """The numbers that prove it."""
    advice: str = ""
    """What to change, in one sentence, where the rule's own advice is too general."""


Test = Callable[[Difference], Finding | None]


@dataclass(frozen=True)
class Rule:
    """An entry of the registry: a cause, and one way to prove it. Several rules may prove one cause."""

    cause: str
    """The identifier that a verdict names, such as `loss-normalisation`."""
    link: Link | None
    """Where on the chain the cause lies; None: not known."""
    proof: str
    """What proves it: a line of the cause's page in docs/causes."""
    advice: str
    """What to change, in one sentence."""
    test: Test
    differs: Callable[[Difference], bool] | None = None
    """Tells whether a fact differs at a step, such as an option: then the runs are different, whatever the floor."""


def rule(
    cause: str, link: Link, *, proof: str, advice: str, differs: Callable[[Difference], bool] | None = None
) -> Callable[[Test], Rule]:
    """Make a test the rule of a cause."""
    return lambda test: Rule(cause, link, proof, advice, test, differs)


def listed(values: list[float]) -> str:
    """Write numbers with four digits each."""
    return ", ".join(exact(value, 4) for value in values)
