"""The command line: `trainparity` and its commands."""

from trainparity.cli import machine, parity, project, run, studies  # each adds its commands
from trainparity.cli.app import app

__all__ = ["app", "machine", "main", "parity", "project", "run", "studies"]


def main() -> None:
    """Run the command line."""
    app()
