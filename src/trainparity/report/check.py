"""The table of `trainparity check`."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainparity.records.check import CheckReport
from trainparity.report.answer import evidence_lines
from trainparity.report.console import STYLES
from trainparity.report.format import NOTHING, number


def show(report: CheckReport, console: Console) -> None:
    """Print one row a candidate, and below it what each difference comes from."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("candidate", "verdict", "distance / floor", "cause", "learns as fp32"):
        table.add_column(heading, justify="right" if "/" in heading else "left", no_wrap=True)
    for result in report.results:
        pair, curves = result.pair, result.curves
        table.add_row(
            Text(pair.name),
            Text(pair.verdict, style=STYLES.get(pair.verdict, "")),
            Text(number(pair.distance_over_floor)),
            Text(pair.cause or NOTHING),
            Text(curves.verdict if curves else NOTHING, style=_CURVES.get(curves.verdict, "") if curves else ""),
        )
    console.print(table)
    for result in report.results:
        pair = result.pair
        if pair.verdict in ("different", "skipped", "failed"):
            console.print(Text(f"{pair.name}: {pair.verdict}: {pair.reason}"), soft_wrap=True)
        if pair.cause:
            console.print(Text(f"  cause: {pair.cause}: {pair.explanation}"), soft_wrap=True)
            console.print(Text(f"  to change: {pair.advice}"), soft_wrap=True)
        if pair.confirmation:
            console.print(Text(f"  {pair.name}: {pair.confirmation}"), soft_wrap=True)
        for line in evidence_lines(pair.evidence):
            console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
        if result.curves:
            console.print(Text(f"{pair.name}: {result.curves.sentence}"), soft_wrap=True)


_CURVES = {"consistent": "green", "drifted": "bold red", "cannot judge": "yellow"}
