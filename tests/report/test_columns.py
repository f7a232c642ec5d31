"""A column is defined once; the console, the page and the CSV file show it."""

import csv
import io
import re

import pytest

from tests.support.report_tree import timing
from trainparity.records.timing import Memory, Utilisation
from trainparity.report import tables
from trainparity.report.columns.candidates import CANDIDATES
from trainparity.report.columns.claims import CLAIMS
from trainparity.report.columns.column import Column, at, shown_in, to_csv
from trainparity.report.columns.controls import CONTROLS
from trainparity.report.columns.pairs import PAIRS
from trainparity.report.columns.runs import RUNS, RunRow
from trainparity.report.columns.runs import rows as run_rows
from trainparity.report.console import table
from trainparity.report.figures import figures_of
from trainparity.report.schema import Summary


@pytest.fixture
def on_gpu(built: Summary) -> RunRow:
    """A run that has every figure."""
    memory = Memory(host_mib=900, device_allocated_mib=300, device_reserved_mib=400)
    seen = Utilisation(gpu_percent=87, temperature_c=64, energy_j=1234)
    measured = timing("compiled", 25.0, compile_s=21.4, graphs=3, graph_breaks=1, memory=memory, utilisation=seen)
    run = built.configurations["compiled"]
    changed = run.model_copy(update={"timing": measured, "figures": figures_of(measured)})
    return RunRow("compiled", changed, False, "elsewhere")


def test_a_run_with_every_figure_fills_every_field_and_cell(on_gpu: RunRow) -> None:
    [found] = csv.DictReader(io.StringIO(to_csv(RUNS, [on_gpu])))
    assert {name for name, value in found.items() if not value} == {"reduction_ms"}  # one process
    cells = {column.heading: (column.cell(on_gpu), column.note(on_gpu)) for column in RUNS}
    assert cells["device MiB,\nallocated / reserved"] == ("300 / 400", "")
    assert cells["GPU"] == ("87 %, 64 °C, 1,234 J", "")
    assert cells["graphs /\nbreaks"] == ("3 / 1", "")
    assert "in another environment" in cells["measured on"][1]


def test_every_column_is_where_it_says(built: Summary, html: str) -> None:
    headings = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', html.replace("<br>", "\n"), re.DOTALL)
    shown = {heading.lower() for heading in headings}
    for column in (*RUNS, *PAIRS):
        if column.heading and set(column.places) & {"page", "details"}:
            assert column.heading.lower() in shown
    console = [column.header for column in table(RUNS, run_rows(built)).columns]
    assert console == [column.heading for column in shown_in("console", RUNS)]
    written = csv.DictReader(io.StringIO(tables.timing(built))).fieldnames or []
    assert list(written) == [field for column in RUNS for field in column.fields]


def test_a_new_column_is_one_entry(built: Summary) -> None:
    steps: Column[RunRow] = Column(heading="steps", fields={"steps": at("run.status.steps")})
    columns = (*RUNS, steps)
    assert "steps" in [column.header for column in table(columns, run_rows(built)).columns]
    assert steps in shown_in("page", columns)
    assert {row["steps"] for row in csv.DictReader(io.StringIO(to_csv(columns, run_rows(built))))} == {"40", "0", "3"}


def test_no_table_has_two_fields_of_one_name() -> None:
    for columns in (RUNS, PAIRS, CLAIMS, CONTROLS, CANDIDATES):
        names = [name for column in columns for name in column.fields]  # type: ignore[attr-defined]
        assert len(names) == len(set(names))
