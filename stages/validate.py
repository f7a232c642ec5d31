"""Stage `validate`: stop on a bad params.yaml, or a dvc.yaml that does not fit it, before anything runs."""

import sys
from pathlib import Path

from trainparity import params, validation, workloads
from trainparity.launch.pipeline import check_pipeline
from trainparity.records.base import write_text
from trainparity.stage import exit_code


def main() -> None:
    settings = params.load(Path("params.yaml"))
    workloads.load(settings.workload.name, settings.workload.options)
    check_pipeline(settings, validation.read_yaml(Path("dvc.yaml")), Path("dvc.yaml"))
    # Always the same: a valid change must not invalidate what does not depend on it.
    write_text(Path("runs/params-valid.txt"), "params.yaml is valid\n")


if __name__ == "__main__":
    sys.exit(exit_code(main))
