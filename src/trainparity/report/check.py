"""The table of `trainparity check`."""

from rich.console import Console
from rich.text import Text

from trainparity.records.check import CheckReport
from trainparity.records.verdict import SAME_TRAINING
from trainparity.report.answer import show_cause
from trainparity.report.columns.candidates import CANDIDATES
from trainparity.report.console import table


def show(report: CheckReport, console: Console) -> None:
    """Print one row a candidate, and below it what each difference comes from."""
    console.print(table(CANDIDATES, report.results.items()))
    for name, pair in report.results.items():
        if pair.verdict not in SAME_TRAINING:
            console.print(Text(f"{name}: {pair.verdict}: {pair.reason}"), soft_wrap=True)
        elif pair.confirmation:  # of what looked different at first
            console.print(Text(f"{name}: {pair.verdict}: {pair.confirmation}"), soft_wrap=True)
        elif pair.vacuous and not pair.curves:
            console.print(Text(f"{name}: {pair.outcome}: {pair.reason}"), soft_wrap=True)
        show_cause(pair, console)
        if pair.curves:
            console.print(Text(f"{name}: {pair.curves.sentence}"), soft_wrap=True)
