"""The command line: `trainparity` and its commands."""

from trainparity.cli import doctor, export, machine, parity, project, run, studies  # each adds its commands
from trainparity.cli.app import app

__all__ = ["app", "doctor", "export", "machine", "main", "parity", "project", "run", "studies"]


def main() -> None:
    """Run the command line."""
    app(prog_name="trainparity")  # also of `python -m trainparity.cli`: completion and help are for this name
