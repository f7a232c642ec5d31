"""The table of `trainparity check`."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainparity.records.check import CheckReport
from trainparity.records.verdict import SAME_TRAINING
from trainparity.report.answer import evidence_lines
from trainparity.report.console import STYLES
from trainparity.report.format import NOTHING, number


def show(report: CheckReport, console: Console) -> None:
    """Print one row a candidate, and below it what each difference comes from."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("candidate", "verdict", "distance / floor", "cause", "learns as fp32"):
        table.add_column(heading, justify="right" if "/" in heading else "left", no_wrap=True)
    for name, pair in report.results.items():
        curves = pair.curves
        table.add_row(
            Text(name),
            Text(pair.verdict, style=STYLES.get(pair.verdict, "")),
            Text(number(pair.distance_over_floor)),
            Text(pair.cause or NOTHING),
            Text(curves.verdict if curves else NOTHING, style=STYLES.get(curves.verdict, "") if curves else ""),
        )
    console.print(table)
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
