"""The command line: `trainparity` and its commands."""

import signal

from trainparity.cli import doctor, export, machine, parity, project, run, studies  # each adds its commands
from trainparity.cli.app import app
from trainparity.lingering import leave

__all__ = ["app", "doctor", "export", "machine", "main", "parity", "project", "run", "studies"]


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="trainparity")  # also of `python -m trainparity.cli`: completion and help are for this name
    except SystemExit as end:
        # typer ends with 1 where the reader has left, which is a verdict's
        leave(128 + signal.SIGPIPE if isinstance(end.__context__, BrokenPipeError) else end.code)
