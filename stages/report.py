"""Stage `report`: summary, tables, curves and the page from what the runs left on disk."""

import sys
from pathlib import Path

from trainparity import params
from trainparity.records import RecordError, write_text
from trainparity.report import artifacts, console, page, summary, tables

REPORTS = Path("reports")


def main() -> int:
    try:
        read = artifacts.read(Path(), params.load(Path("params.yaml")))
    except params.ParamsError as error:
        print(error, file=sys.stderr)
        return 2
    except RecordError as error:
        print(error, file=sys.stderr)
        return 1
    built = summary.build(read)
    html = page.render(built, read)
    built.write(REPORTS / "summary.json")
    write_text(REPORTS / "parity.csv", tables.parity(built))
    write_text(REPORTS / "timing.csv", tables.timing(built))
    write_text(REPORTS / "plots" / "loss.csv", tables.loss_curves(read))
    write_text(REPORTS / "plots" / "step_time.csv", tables.step_times(read))
    write_text(REPORTS / "index.html", html)
    console.show(built, console.make_console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
