"""The table of the controls, as `trainparity controls` prints it."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainparity.records.controls import ControlReport, ControlResult
from trainparity.report import words
from trainparity.report.format import NOTHING, number


def show(report: ControlReport, console: Console) -> None:
    """Print one row a control and the sum of them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("control", "cause", "ranks", "runs", "different", "named", "distance / floor"):
        table.add_column(heading, justify="left" if heading in ("control", "cause") else "right", no_wrap=True)
    for control in report.controls:
        table.add_row(*_row(control))
    console.print(table)
    console.print(Text(words.controls_sentence(report), style="green" if report.passed else "bold red"), soft_wrap=True)


def _row(control: ControlResult) -> list[Text]:
    expected = control.trials if control.expected else 0
    style = "" if control.different == expected and not control.misnamed else "bold red"
    named = str(control.named) if control.expected else NOTHING
    span = f"{number(control.smallest)}–{number(control.largest)}"
    cells = [control.name, control.expected or "(right)", control.ranks, control.trials, control.different, named, span]
    return [Text(str(cell), style=style) for cell in cells]
