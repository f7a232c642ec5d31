"""Stage `report`: summary, tables, curves and the page from what the runs left on disk."""

from pathlib import Path

from trainparity import params
from trainparity.records.base import write_text
from trainparity.report import artifacts, console, origin, pipeline, summary, tables
from trainparity.report.terminal import make_console

REPORTS = Path("reports")


def main() -> None:
    read = artifacts.read(Path(), params.load(Path("params.yaml")))
    built = summary.build(read)
    built.write(REPORTS / "summary.json")
    write_text(REPORTS / "parity.csv", tables.parity(built))
    write_text(REPORTS / "timing.csv", tables.timing(built))
    if read.claims:
        write_text(REPORTS / "claims.csv", tables.claims(read.claims))
    write_text(REPORTS / "plots" / "loss.csv", tables.loss_curves(read))
    write_text(REPORTS / "plots" / "step_time.csv", tables.step_times(read))
    write_text(REPORTS / "index.html", pipeline.render(built, read, origin.of("dvc repro report")))
    console.show(built, make_console())
