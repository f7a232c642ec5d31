"""The command line: `trainparity` and its commands."""

import sys

from trainparity import validation
from trainparity.cli import machine, parity, run, studies  # each adds its commands
from trainparity.cli.app import app
from trainparity.records.base import RecordError
from trainparity.stage import StageError

__all__ = ["app", "machine", "main", "parity", "run", "studies"]


def main() -> None:
    """Run the command line; a user's mistake, and what is missing or damaged, end in one message and exit code 2."""
    try:
        app()
    except (validation.ParamsError, RecordError, StageError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)  # 1 says that two runs are not the same training
