"""The table at the end of a run."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainparity.records.claims import ClaimReport
from trainparity.records.verdict import SAME_TRAINING
from trainparity.report import words
from trainparity.report.format import NOTHING, number
from trainparity.report.schema import RunSummary, Summary

STYLES = {
    "bitwise": "bold green",
    "equivalent": "green",
    "different": "bold red",
    "failed": "bold red",
    "skipped": "dim",
    "consistent": "green",
    "drifted": "bold red",
    "cannot judge": "yellow",
    "confirmed": "green",
    "not confirmed": "bold red",
    "not measurable here": "yellow",
    "no speed-up": "yellow",
    "graph breaks": "yellow",
    "loader failed": "yellow",
    "not compared": "yellow",
    "emulated": "yellow",
    "withheld": "yellow",
}
"""Colour repeats what the word says; green is kept for what was really run and proved."""


def make_console() -> Console:
    """Return a console on stdout; one that is no terminal gets room for the whole table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 120))


def show(summary: Summary, console: Console) -> None:
    """Print the table, and below it what the table can't say; needs 100 columns to print unwrapped."""
    console.print(_table(summary))
    _line(console, "", f"{words.parity_sentence(summary)} {words.gain_sentence(summary)}")
    references = {run.reference for run in summary.references.values()} | {"reference"}
    for pair in summary.pairs.values():
        judged_counterpart = pair.right not in summary.configurations and pair.distance_over_floor is not None
        if pair.left not in references or judged_counterpart:
            text = f"{pair.left} / {pair.right}: {pair.verdict}"
            if pair.distance_over_floor is not None:
                text += f", distance / floor {number(pair.distance_over_floor)}"
            _line(console, _kind(pair.verdict, words.imitated(summary, pair)), text)
    for note in words.notes(summary):
        _line(console, note.kind, f"{note.name}: {note.kind}: {note.text}")
        if note.remedy:
            _line(console, "", f"  remedy: {note.remedy}")
    for name, curves in summary.curves.items():
        _line(console, _kind(curves.verdict, False), f"{name}: {curves.sentence}")
    answer = summary.known_answer
    if answer or not summary.claims:
        _line(console, "failed" if answer and not answer.reproduced else "", words.known_answer_sentence(answer))
    if summary.claims:
        show_claims(summary.claims, console)
    if summary.controls:
        _line(console, "", f"controls: {words.controls_sentence(summary.controls)}")
    _line(console, "dim", words.environment_sentence(summary.environment))
    _line(console, "dim", words.dates_sentence(summary))


def show_claims(report: ClaimReport, console: Console) -> None:
    """Print a study's claims: what was published, and what was measured."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("claim", "published", "measured", "verdict"):
        table.add_column(name, overflow="fold", ratio=1 if name != "claim" else None)
    for result in report.results:
        measured = "\n".join(filter(None, (result.measured or result.reason, result.remark)))
        cells = (f"{result.name}: {result.statement}", result.published, measured)
        table.add_row(*map(Text, cells), Text(result.verdict, style=STYLES[result.verdict]), end_section=True)
    console.print(table)
    _line(console, "dim", words.claims_sentence(report))


def _table(summary: Summary) -> Table:
    """Lay out one row per reference and configuration, in the order of params.yaml: not a ranking."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("configuration", "device", "verdict"):
        table.add_column(name, no_wrap=True)
    for heading in ("distance\n/ floor", "step ms\nmedian", "samples\n/ s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("speed-up\n(95 % interval)", justify="right", no_wrap=True)
    table.add_column("peak\nMiB", justify="right", no_wrap=True)
    table.add_column("compile\ns", justify="right", no_wrap=True)
    for run in summary.references.values():
        table.add_row(*_row(run.reference, run, "reference", "1×" if run.step_ms else NOTHING))
    for name, run in summary.configurations.items():
        table.add_row(*_row(name, run, words.outcome(run), words.speedup_cell(run)))
    return table


def _row(name: str, run: RunSummary, verdict: str, speedup: str) -> list[Text]:
    """Return a run's cells; Text, as a reason or a name must not be read as markup."""
    missing = run.status != "trained"
    verdict = run.status if missing else verdict
    style = STYLES.get(_kind(verdict, run.emulated), "")
    return [
        Text(name, style="dim" if run.status == "skipped" else ""),
        Text(run.device or NOTHING),
        Text(verdict, style=style),
        Text(number(run.distance_over_floor)),
        Text(number(run.step_ms.median if run.step_ms else None)),
        Text(number(run.samples_per_s)),
        Text(speedup, style=STYLES.get(speedup, "")),
        Text(number(run.peak_memory_mib)),
        Text(number(run.compile_s)),
    ]


def _kind(verdict: str, emulated: bool) -> str:
    """Return the key of STYLES: an emulation keeps a good verdict from being green."""
    return "emulated" if emulated and verdict in SAME_TRAINING else verdict


def _line(console: Console, kind: str, text: str) -> None:
    """Print one line of plain text, coloured by its kind."""
    console.print(Text(text, style=STYLES.get(kind, kind)))
