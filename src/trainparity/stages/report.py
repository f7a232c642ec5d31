"""Stage `report`: summary, tables, curves, the page and the document from what the runs left on disk."""

from pathlib import Path

from trainparity import params
from trainparity.records.files import replacing, write_text
from trainparity.report import artifacts, console, markdown, origin, pictures, pipeline, summary, tables
from trainparity.report.terminal import make_console

REPORTS = Path("reports")


def main() -> None:
    read = artifacts.read(Path(), params.load(Path("params.yaml")))
    built, here = summary.build(read), origin.of("trainparity repro")
    built.write(REPORTS / "summary.json")
    write_text(REPORTS / "parity.csv", tables.parity(built))
    write_text(REPORTS / "timing.csv", tables.timing(built))
    if read.claims:
        write_text(REPORTS / "claims.csv", tables.claims(read.claims))
    write_text(REPORTS / "plots" / "loss.csv", tables.loss_curves(read))
    write_text(REPORTS / "plots" / "step_time.csv", tables.step_times(read))
    write_text(REPORTS / "index.html", pipeline.render(built, read, here))
    drawn = pictures.figures(built)
    with replacing(REPORTS / "figures") as unfinished:
        unfinished.mkdir()  # where no run trained, there is nothing to draw
        for name, picture in drawn.items():
            write_text(unfinished / name, picture)
    write_text(REPORTS / "report.md", markdown.report(built, here, drawn))
    console.show(built, make_console())
