"""The table of `trainparity check`."""

from rich.console import Console
from rich.text import Text

from trainparity.records.check import CheckReport
from trainparity.records.verdict import SAME_TRAINING
from trainparity.report.answer import evidence_lines
from trainparity.report.columns.candidates import CANDIDATES
from trainparity.report.console import table


def show(report: CheckReport, console: Console) -> None:
    """Print one row a candidate, and below it what each difference comes from."""
    console.print(table(CANDIDATES, report.results.items()))
    for name, pair in report.results.items():
        if pair.verdict not in SAME_TRAINING:
            console.print(Text(f"{name}: {pair.verdict}: {pair.reason}"), soft_wrap=True)
        if pair.cause:
            console.print(Text(f"  cause: {pair.cause}: {pair.explanation}"), soft_wrap=True)
            console.print(Text(f"  to change: {pair.advice}"), soft_wrap=True)
        if pair.confirmation:
            console.print(Text(f"  {name}: {pair.confirmation}"), soft_wrap=True)
        for line in evidence_lines(pair.evidence):
            console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
        if pair.curves:
            console.print(Text(f"{name}: {pair.curves.sentence}"), soft_wrap=True)
