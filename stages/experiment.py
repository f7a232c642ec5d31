"""Stage `experiment`: the figures of `parallel`'s run as metrics.json, for `dvc exp show`."""

import json
import sys
from pathlib import Path

from trainparity import params
from trainparity.records import RecordError, Status, Timing, write_text
from trainparity.report import summary


def main() -> int:
    try:
        run = Path("runs") / params.load(Path("params.yaml")).parallel
        status = Status.read(run / "state" / "status.json")
        timing = Timing.read(run / "report" / "timing.json") if status.status == "trained" else None
    except params.ParamsError as error:
        print(error, file=sys.stderr)
        return 2
    except RecordError as error:
        print(error, file=sys.stderr)
        return 1
    write_text(Path("metrics.json"), json.dumps(summary.experiment(status, timing), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
