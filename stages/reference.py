"""Stage `reference@<precision>`: train the reference and the twins that measure its noise floor."""

import sys
from pathlib import Path
from typing import get_args

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.containers import here_or_contained, image_of
from trainparity.launch.runs import run_reference
from trainparity.stage import exit_code
from trainparity.training.spec import reference_configuration


def train(precision: params.Precision) -> None:
    settings = params.load(Path("params.yaml"))
    environment = Environment.read(Path("runs/environment.json"))
    status = run_reference(settings, environment, precision, runs=Path("runs"), data=Path("data/prepared"))
    print(f"reference {precision}: {status.outcome}")


def main() -> None:
    precision = next(p for p in get_args(params.Precision) if p == sys.argv[1])
    configuration = reference_configuration(precision)
    here_or_contained(lambda: train(precision), lambda settings: image_of(configuration, settings))


if __name__ == "__main__":
    sys.exit(exit_code(main))
