"""Stage `experiment`: verdict and figures of `parallel`'s run as metrics.json, for `dvc exp show`."""

import json
from pathlib import Path

from trainparity import params
from trainparity.records import layout
from trainparity.records.files import write_text
from trainparity.records.run import Status
from trainparity.records.timing import Timing
from trainparity.report.figures import experiment
from trainparity.validation import ParamsError


def main() -> None:
    from trainparity.parity.pairs import (
        judge_configuration,
    )  # with torch: 2 s

    settings = params.load(Path("params.yaml"))
    parallel = settings.parallel
    if parallel is None:
        raise ParamsError("params.yaml: parallel: missing; name the configuration to report")
    runs = Path("runs")
    status = Status.read(layout.status(runs, parallel))
    timing = Timing.read(layout.timing(runs, parallel)) if status.status == "trained" else None
    verdict = judge_configuration(settings, runs, parallel)
    write_text(Path("metrics.json"), json.dumps(experiment(status, timing, verdict), indent=1) + "\n")
