"""Stage `reference@<precision>`: train the reference and the twins that measure its noise floor."""

import sys
from pathlib import Path
from typing import get_args

from trainparity import params
from trainparity.environment import Environment
from trainparity.launch.runs import run_reference
from trainparity.stage import exit_code


def main() -> None:
    settings = params.load(Path("params.yaml"))
    environment = Environment.read(Path("runs/environment.json"))
    precision = next(p for p in get_args(params.Precision) if p == sys.argv[1])
    status = run_reference(settings, environment, precision, runs=Path("runs"), data=Path("data/prepared"))
    print(f"reference {precision}: {status.status}" + (f": {status.reason}" if status.reason else ""))


if __name__ == "__main__":
    sys.exit(exit_code(main))
