"""The table of the controls: loops that are known to be right or wrong, and what the checker said of them."""

from trainparity.records.controls import ControlResult
from trainparity.records.numbers import NOTHING
from trainparity.report.columns.column import Column, at
from trainparity.report.format import span


def _style(control: ControlResult) -> str:
    expected = control.trials if control.expected else 0
    return "" if control.different == expected and not control.misnamed else "failed"


CONTROLS: tuple[Column[ControlResult], ...] = (
    Column(heading="control", text=at("name"), style=_style, numeric=False),
    Column(heading="what it is", text=at("what"), numeric=False, places=("page",)),
    Column(heading="cause", text=lambda control: control.expected or "(right)", style=_style, numeric=False),
    Column(heading="ranks", text=lambda control: str(control.ranks), style=_style),
    Column(heading="runs", text=lambda control: str(control.trials), style=_style),
    Column(heading="different", text=lambda control: str(control.different), style=_style),
    Column(heading="named", text=lambda control: str(control.named) if control.expected else NOTHING, style=_style),
    Column(heading="distance / floor", text=lambda control: span(control.smallest, control.largest), style=_style),
)
"""One entry is a column of the console's table and of the page's."""
