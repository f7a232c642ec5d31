"""Stage `reference@<entry of references>`: train the reference and the twins that measure its noise floor."""

import sys
from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.containers import here_or_contained, image_of
from trainparity.launch.runs import run_reference
from trainparity.stage import exit_code


def train(name: str) -> None:
    settings = params.load(Path("params.yaml"))
    environment = Environment.read(Path("runs/environment.json"))
    status = run_reference(settings, environment, name, runs=Path("runs"), data=Path("data/prepared"))
    print(f"reference {name}: {status.outcome}")


def main() -> None:
    name = sys.argv[1]
    here_or_contained(lambda: train(name), lambda settings: image_of(settings.reference_configuration(name), settings))


if __name__ == "__main__":
    sys.exit(exit_code(main))
