"""Stage `train@<configuration>`: train one configuration, or record why it can't be."""

import sys
from pathlib import Path

from trainparity import params
from trainparity.environment import Environment, detect
from trainparity.exits import exit_code
from trainparity.launch.containers import here_or_contained, image_of
from trainparity.launch.runs import run_configuration
from trainparity.records import layout


def train(name: str) -> None:
    settings = params.load(Path("params.yaml"))
    if settings.runtime == "docker" and settings.configs[name].device == "mps":
        print(f"{name}: on the host, as no container has Metal")
        environment = detect()
    else:
        environment = Environment.read(layout.environment(Path("runs")))
    status = run_configuration(settings, environment, name, runs=Path("runs"), data=Path("data/prepared"))
    print(f"{name}: {status.outcome}")


def main() -> None:
    name = sys.argv[1]
    here_or_contained(lambda: train(name), lambda settings: image_of(settings.configs[name], settings))


if __name__ == "__main__":
    sys.exit(exit_code(main))
