"""The table of the controls, as `trainparity controls` prints it."""

from rich.console import Console
from rich.text import Text

from trainparity.records.controls import ControlReport
from trainparity.report import words
from trainparity.report.columns.controls import CONTROLS
from trainparity.report.console import table


def show(report: ControlReport, console: Console) -> None:
    """Print one row a control and the sum of them."""
    console.print(table(CONTROLS, report.controls))
    console.print(Text(words.controls_sentence(report), style="green" if report.passed else "bold red"), soft_wrap=True)
