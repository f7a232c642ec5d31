"""One command under two Python interpreters."""

import os
from dataclasses import replace
from pathlib import Path

from trainparity.running.command import Command
from trainparity.running.errors import RunError

_MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}


def under(command: Command, python: Path) -> Command:
    """Return a command that runs under an interpreter, which also comes first on PATH.

    Raises:
        RunError: there is none, or the command names its interpreter in a way that can't be replaced.
    """
    interpreter = python.absolute()  # not resolved: a virtual environment's is a link
    if not os.access(interpreter, os.X_OK) or interpreter.is_dir():
        raise RunError(f"{python} is no Python interpreter")
    program, *rest = command.arguments
    name = Path(program).name
    if name.startswith("python"):
        words = [str(interpreter), *rest]
    elif name in _MODULES:
        words = [str(interpreter), "-m", _MODULES[name], *rest]
    else:
        raise RunError(f"{program}: with two interpreters the command starts with python, torchrun or accelerate")
    path = f"{interpreter.parent}{os.pathsep}{command.environment.get('PATH', os.environ.get('PATH', ''))}"
    return replace(command, arguments=tuple(words), environment={**command.environment, "PATH": path})
