"""The table at the end of a run."""

from collections.abc import Iterable
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainparity.records.claims import ClaimReport
from trainparity.records.numbers import number
from trainparity.report import words
from trainparity.report.columns import runs
from trainparity.report.columns.claims import CLAIMS
from trainparity.report.columns.column import Column, shown_in
from trainparity.report.columns.runs import RUNS
from trainparity.report.schema import Summary
from trainparity.report.styles import STYLES, key

T = TypeVar("T")


def show(summary: Summary, console: Console) -> None:
    """Print the table, and below it what the table cannot say; needs 100 columns to print unwrapped."""
    console.print(table(RUNS, runs.rows(summary)))
    _line(console, "", f"{words.parity_sentence(summary)} {words.gain_sentence(summary)}")
    references = {run.reference for run in summary.references.values()} | {"reference"}
    for pair in summary.pairs.values():
        judged_counterpart = pair.right not in summary.configurations and pair.distance_over_floor is not None
        if pair.left not in references or judged_counterpart:
            text = f"{pair.left} / {pair.right}: {pair.verdict}"
            if pair.distance_over_floor is not None:
                text += f", distance / floor {number(pair.distance_over_floor)}"
            if pair.confirmation:
                text += f"; {pair.confirmation}"
            _line(console, key(pair.verdict, words.imitated(summary, pair)), text)
    for note in words.notes(summary):
        _line(console, note.kind, f"{note.name}: {note.kind}: {note.text}")
        if note.remedy:
            _line(console, "", f"  remedy: {note.remedy}")
    for name, curves in summary.curves.items():
        _line(console, key(curves.verdict, False), f"{name}: {curves.sentence}")
    if answer := summary.known_answer:
        _line(console, "" if answer.reproduced else "failed", words.known_answer_sentence(answer))
    if summary.claims:
        show_claims(summary.claims, console)
    if summary.controls:
        _line(console, "", f"controls: {words.controls_sentence(summary.controls)}")
    _line(console, "dim", words.environment_sentence(summary))
    _line(console, "dim", words.dates_sentence(summary))


def show_claims(report: ClaimReport, console: Console) -> None:
    """Print a study's claims: what was published, and what was measured."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    columns = shown_in("console", CLAIMS)
    for column in columns:
        table.add_column(column.heading, overflow="fold", ratio=1)
    for result in report.results:
        table.add_row(*(cell(column, result, noted=True) for column in columns), end_section=True)
    console.print(table)
    _line(console, "dim", words.claims_sentence(report))


def table(columns: Iterable[Column[T]], rows: Iterable[T]) -> Table:
    """Lay out the columns that the console shows, none of them wrapped."""
    shown = shown_in("console", columns)
    laid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in shown:
        laid.add_column(column.heading, justify="right" if column.numeric else "left", no_wrap=True)
    for row in rows:
        laid.add_row(*(cell(column, row) for column in shown))
    return laid


def cell(column: Column[T], row: T, *, noted: bool = False) -> Text:
    """Return a cell, with its note if wanted; Text, as a reason or a name must not be read as markup."""
    note = column.note(row) if noted else ""
    return Text("\n".join(filter(None, (column.cell(row), note))), style=STYLES.get(column.style(row), ""))


def _line(console: Console, kind: str, text: str) -> None:
    """Print one line of plain text, coloured by its kind."""
    console.print(Text(text, style=STYLES.get(kind, kind)))
