"""The command line: `trainparity` and its commands."""

import signal
import sys

from trainparity.cli import doctor, export, machine, parity, project, run, studies  # each adds its commands
from trainparity.cli.app import app

__all__ = ["app", "doctor", "export", "machine", "main", "parity", "project", "run", "studies"]


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="trainparity")  # also of `python -m trainparity.cli`: completion and help are for this name
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer ends with 1 then, which is a verdict's
            sys.exit(128 + signal.SIGPIPE)
        raise
