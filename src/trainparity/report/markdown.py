"""Answers as Markdown, for the summary of a CI job or a comment on a change."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from trainparity.printable import printable
from trainparity.records.check import CheckReport
from trainparity.records.claims import ClaimReport
from trainparity.records.controls import ControlReport
from trainparity.records.curves import CurveResult
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.report import words
from trainparity.report.columns import runs
from trainparity.report.columns.candidates import CANDIDATES
from trainparity.report.columns.claims import CLAIMS
from trainparity.report.columns.column import Column, shown_in
from trainparity.report.columns.controls import CONTROLS
from trainparity.report.columns.curves import CURVES
from trainparity.report.columns.runs import RUNS
from trainparity.report.origin import Origin
from trainparity.report.schema import Summary

T = TypeVar("T")

_COMPARED = (replace(CANDIDATES[0], heading="runs"), *CANDIDATES[1:-1])
"""The columns of one comparison: it has no learning curves."""


def table(columns: Iterable[Column[T]], rows: Iterable[T]) -> str:
    """Write the columns that the console shows."""
    shown = shown_in("console", columns)
    lines = [_row(" ".join(column.heading.split()) for column in shown)]
    lines.append(_row("--:" if column.numeric else ":--" for column in shown))
    lines += [_row(column.cell(row) for column in shown) for row in rows]
    return "\n".join(lines) + "\n"


def verdict(answer: Verdict) -> str:
    """Write one comparison: a table of one row, and of a difference its cause."""
    row = f"{answer.left} / {answer.right}", answer
    return f"{table(_COMPARED, [row])}\n{''.join(_explained(*row))}"


def check(report: CheckReport) -> str:
    """Write one row a candidate, and below it what each difference comes from."""
    below = [text for name, pair in report.results.items() for text in _explained(name, pair)]
    return f"{table(CANDIDATES, report.results.items())}\n{''.join(below)}"


def claims(report: ClaimReport) -> str:
    """Write a study's claims: what was published, and what was measured."""
    return f"{table(CLAIMS, report.results)}\n{_text(words.claims_sentence(report))}\n"


def controls(report: ControlReport) -> str:
    """Write one row a control and the sum of them."""
    return f"{table(CONTROLS, report.controls)}\n{_text(words.controls_sentence(report))}\n"


def curves(result: CurveResult) -> str:
    """Write whether two recipes learn alike: a table of one row, and the sentence."""
    return listed(CURVES, [result], below=[result.sentence])


def listed(columns: Iterable[Column[T]], rows: Iterable[T], *, above: str = "", below: Iterable[str] = ()) -> str:
    """Write a table with a sentence above it and a list below."""
    first = f"{_text(above)}\n\n" if above else ""
    entries = "".join(f"- {_text(line)}\n" for line in below)
    return f"{first}{table(columns, rows)}\n{entries}"


def summary(built: Summary) -> str:
    """Write the table of a pipeline's runs, and below it what the table cannot say."""
    notes = map(_note, words.notes(built))
    sentence = f"{words.parity_sentence(built)} {words.gain_sentence(built)}"
    return f"{table(RUNS, runs.rows(built))}\n{_text(sentence)}\n\n{''.join(notes)}"


def report(built: Summary, origin: Origin, pictures: Iterable[str]) -> str:
    """Write a pipeline's report as a document: a line a figure, so that two versions of it can be compared by lines.

    Args:
        built: The summary.
        origin: Where the report comes from.
        pictures: Names of the pictures, which lie in the folder `figures` beside the document.
    """
    causes = [text for name, pair in built.pairs.items() for text in _explained(name, pair)]
    notes = [_note(note) for note in words.notes(built) if note.kind not in words.OF_PAIRS]
    parts = [
        f"# {_text(built.workload.name)} on {_text(built.dataset.name)}\n",
        f"{_text(words.parity_sentence(built))}\n\n{_text(words.gain_sentence(built))}\n",
        table(RUNS, runs.rows(built)),
        "".join(notes),
        "".join(f"![{name.partition('.')[0]}](figures/{name})\n" for name in pictures),
        "".join(["## Why they differ, or were not judged\n\n", *causes]) if causes else "",
        f"{_text(words.environment_sentence(built))}; {_text(words.dates_sentence(built))}\n",
        f"Made by `{origin.command}` of trainparity {origin.version}, commit {_text(origin.commit or 'unknown')}\n",
    ]
    return "\n".join(part for part in parts if part)


def _explained(name: str, pair: Verdict) -> Iterator[str]:
    """Yield a list's entries on what is no plain pass."""
    if pair.verdict not in SAME_TRAINING or (pair.vacuous and not pair.curves):
        yield f"- **{_text(name)}**: {pair.outcome}: {_text(pair.reason or 'no reason recorded')}\n"
    elif pair.not_compared:
        yield f"- **{_text(name)}**: {pair.outcome} over {_text(pair.extent)}\n"
        yield from (f"  - {_text(line)}\n" for line in pair.not_compared)
    if pair.cause:
        yield f"  - cause: **{_text(pair.cause)}**: {_text(pair.explanation or '')}\n"
        yield f"  - to change: {_text(pair.advice or '')}\n"
    elif pair.advice:
        yield f"  - to know more: {_text(pair.advice)}\n"
    if pair.confirmation:
        yield f"  - second opinion: {_text(pair.confirmation)}\n"
    if pair.operator:
        yield f"  - operator: {_text(pair.operator.sentence)}\n"
    if pair.bisection:
        yield f"  - settings: {_text(pair.bisection.sentence)}\n"
    if pair.curves:
        yield f"- **{_text(name)}**: {_text(pair.curves.sentence)}\n"


def _note(note: words.Note) -> str:
    return f"- {_text(f'{note.name}: {note.kind}: {note.text}')}\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_text(cell) for cell in cells)} |"


def _text(text: str) -> str:
    """Return text on one line, in which nothing is read as markup, or as control by the terminal of a CI job's log."""
    text = printable(text)
    for character in "\\`*_|<>[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
