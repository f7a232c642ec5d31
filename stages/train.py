"""Stage `train@<configuration>`: train one configuration, or record why it can't be."""

import sys
from pathlib import Path

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.runs import run_configuration
from trainparity.stage import exit_code


def main() -> None:
    name = sys.argv[1]
    settings = params.load(Path("params.yaml"))
    environment = Environment.read(Path("runs/environment.json"))
    status = run_configuration(settings, environment, name, runs=Path("runs"), data=Path("data/prepared"))
    print(f"{name}: {status.status}" + (f": {status.reason}" if status.reason else ""))


if __name__ == "__main__":
    sys.exit(exit_code(main))
