"""The table of pairs: their verdicts and largest distances."""

from typing import NamedTuple

from trainparity.records.numbers import NOTHING, number
from trainparity.records.verdict import Verdict, Worst
from trainparity.report import words
from trainparity.report.columns.column import Column, at
from trainparity.report.schema import Summary
from trainparity.report.styles import key


class PairRow(NamedTuple):
    """One pair of the table."""

    name: str
    verdict: Verdict
    emulated: bool
    """Whether this machine imitates one of its runs."""

    @property
    def absent(self) -> bool:
        """Whether a run of the pair did not train."""
        return self.verdict.verdict in ("skipped", "failed")

    @property
    def title(self) -> str:
        """The runs of the pair."""
        return f"{self.verdict.left} / {self.verdict.right}"


def rows(summary: Summary) -> list[PairRow]:
    """Return all pairs, in the order of params.yaml."""
    return [PairRow(name, verdict, words.imitated(summary, verdict)) for name, verdict in summary.pairs.items()]


def _judged(row: PairRow) -> bool:
    return row.verdict.distance_over_floor is not None


def _beyond(row: PairRow) -> str:
    if row.verdict.step is not None:
        return f"step {row.verdict.step}"
    return "never" if _judged(row) else NOTHING


def _ranks_agree(row: PairRow) -> str:
    return NOTHING if not _judged(row) else "yes" if row.verdict.ranks_agree else "no"


def _worst(row: PairRow, kind: str) -> Worst | None:
    return next((worst for worst in row.verdict.worst if worst.kind == kind), None)


def _distance(kind: str) -> Column[PairRow]:
    """Return the column of one kind of tensor."""

    def note(row: PairRow) -> str:
        found = _worst(row, kind)
        return f"{number(found.floor)} floor" if found else ""

    return Column(heading=kind, text=lambda row: number(at("distance")(_worst(row, kind))), note=note)


PAIRS: tuple[Column[PairRow], ...] = (
    Column(
        heading="pair",
        text=at("title"),
        numeric=False,
        fields={"pair": at("name"), "left": at("verdict.left"), "right": at("verdict.right")},
    ),
    Column(
        heading="verdict",
        text=at("verdict.verdict"),
        note=lambda row: "partly emulated" if row.emulated else "",
        style=lambda row: key(row.verdict.verdict, row.emulated),
        numeric=False,
        fields={"verdict": at("verdict.verdict")},
    ),
    Column(
        heading="distance\n/ floor",
        text=at("verdict.multiple"),
        fields={"distance_over_floor": at("verdict.distance_over_floor")},
    ),
    _distance("gradient"),
    _distance("update"),
    _distance("weight"),
    _distance("buffer"),
    Column(
        heading="beyond\nthe margin",
        text=_beyond,
        note=lambda row: row.verdict.tensor or "",
        numeric=False,
        fields={"step": at("verdict.step"), "tensor": at("verdict.tensor")},
    ),
    Column(
        heading="ranks\nagree",
        text=_ranks_agree,
        numeric=False,
        fields={"ranks_agree": at("verdict.ranks_agree")},
    ),
    Column(
        fields={name: at(f"verdict.{name}") for name in ("weights", "reason", "cause", "explanation", "advice")},
    ),
)
"""One entry is a column of the page's table and of parity.csv."""
