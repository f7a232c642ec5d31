"""The command line: `trainparity` and its commands."""

import os
import signal

from trainparity.cli import doctor, export, machine, parity, project, run, studies  # each adds its commands
from trainparity.cli.app import app
from trainparity.errors import UserError
from trainparity.exits import exit_code
from trainparity.lingering import leave

__all__ = ["app", "doctor", "export", "machine", "main", "parity", "project", "run", "studies"]


_COMPLETE = "_TRAINPARITY_COMPLETE"
"""What a shell sets for its completion; click ends with 1, which is a verdict's, where it is anything else."""


def _refuse(asked: str) -> None:
    raise UserError(
        f"${_COMPLETE} is {asked!r}; it is a shell's, as `trainparity --show-completion` prints it: unset it"
    )


def main() -> None:
    """Run the command line."""
    if (asked := os.environ.get(_COMPLETE)) and not asked.startswith(("source_", "complete_")):
        leave(exit_code(lambda: _refuse(asked)))
    try:
        app(prog_name="trainparity")  # also of `python -m trainparity.cli`: completion and help are for this name
    except SystemExit as end:
        if end.__context__ and isinstance(end.__context__.__cause__, KeyboardInterrupt):
            raise end.__context__.__cause__ from None  # of which typer, before a command begins, says nothing
        # typer ends with 1 where the reader has left, which is a verdict's
        leave(128 + signal.SIGPIPE if isinstance(end.__context__, BrokenPipeError) else end.code)
