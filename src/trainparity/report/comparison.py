"""A comparison as every page shows it: the verdict with what stands behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from trainparity.records.detail import Detail
from trainparity.records.numbers import number
from trainparity.records.verdict import SAME_TRAINING, Link, Verdict
from trainparity.report.format import joined
from trainparity.report.styles import key
from trainparity.report.trend import worst_by_column

LINKS: tuple[str, ...] = get_args(Link)

_SAME = "same"
_ORDER = ("different", "drifted", "failed", "cannot judge", _SAME, "consistent", "skipped")
"""Outcomes in the order in which they are told: what needs somebody comes first."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One pair of runs."""

    number: int
    """Its place on the page, by which the page's script finds its numbers."""
    title: str
    verdict: Verdict
    details: Mapping[str, Detail] = field(default_factory=dict)
    """By model; empty where nothing was judged."""
    emulated: bool = False
    """Whether this machine only imitates one of the runs."""
    command: str | None = None
    """What repeats it, where that is not the page's own command."""
    remedy: str | None = None
    """What to do about a run that did not train."""

    @property
    def outcome(self) -> str:
        """The verdict's word."""
        return self.verdict.outcome

    @property
    def same(self) -> bool:
        """Whether every step is the same training."""
        return self.verdict.verdict in SAME_TRAINING

    @property
    def style(self) -> str:
        """The class of the verdict on the page."""
        return key(self.outcome, self.emulated)

    @property
    def chain(self) -> list[str]:
        """The links of an optimizer step; `start` only where the runs part there."""
        return list(LINKS if self.verdict.link == LINKS[0] else LINKS[1:])

    @property
    def most(self) -> str:
        """How far the runs are apart at most, of what is the same training."""
        verdict = self.verdict
        if verdict.verdict == "bitwise" or verdict.distance_over_floor is None:
            return "every bit equal"
        if verdict.again_in_float64:
            return f"beyond the margin, but {verdict.confirmation}"
        return f"at most {number(verdict.distance_over_floor)} × the floor"

    @property
    def trend(self) -> list[float]:
        """Largest distance / floor of anything that is judged, over the steps."""
        return worst_by_column([strip for detail in self.details.values() for strip in detail.strips])


class Chip(NamedTuple):
    """A count at the top of a page."""

    number: int
    word: str
    style: str
    note: str


def chips(comparisons: Sequence[Comparison]) -> list[Chip]:
    """Count the comparisons by outcome, those that need somebody first."""
    words = [_SAME if one.outcome in SAME_TRAINING else one.outcome for one in comparisons]
    found = []
    for word in _ORDER:
        imitated = sum(one.emulated for one, own in zip(comparisons, words, strict=True) if own == word == _SAME)
        if count := words.count(word):
            style = key("equivalent", imitated == count) if word == _SAME else word
            found.append(Chip(count, word, style, f"{imitated} emulated" if imitated else ""))
    return found


def headline(comparisons: Sequence[Comparison]) -> str:
    """Answer in one sentence whether it is the same training."""
    if len(comparisons) == 1:
        return _single(comparisons[0])
    different = sum(one.outcome in ("different", "drifted") for one in comparisons)
    same = sum(one.outcome in SAME_TRAINING for one in comparisons)
    total = len(comparisons)
    if different:
        return f"{different} of {total} comparisons {'shows' if different == 1 else 'show'} a different training."
    if same == total:
        return f"All {total} comparisons show the same training."
    if same:
        return (
            f"{same} of {total} comparisons {'shows' if same == 1 else 'show'} the same training, none a different one."
        )
    return f"None of {total} comparisons could be judged."


def _single(one: Comparison) -> str:
    left, right = one.verdict.left, one.verdict.right
    if one.outcome == "drifted":
        return f"{right} learns otherwise than {left}."
    if one.outcome == "consistent":
        return f"{right} learns as fp32 does."
    if one.outcome in SAME_TRAINING:
        return f"{right} is the same training as {left}."
    if one.outcome == "different":
        return f"{right} is a different training from {left}."
    return f"{right} was not compared with {left}: {one.outcome}."


def title(comparisons: Sequence[Comparison]) -> str:
    """Return the title of the browser's tab: the counts, different first."""
    return joined([f"{chip.number} {chip.word}" for chip in chips(comparisons)]) or "nothing compared"
