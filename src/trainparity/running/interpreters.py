"""One command under two Python interpreters."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from trainparity.running.command import Command
from trainparity.running.errors import RunError

_MODULES = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}
_ANSWER_S = 60.0
"""How long an interpreter may take to start, as from a slow disk."""


def under(command: Command, python: Path) -> Command:
    """Return a command that runs under an interpreter, which also comes first on PATH.

    Raises:
        RunError: there is none, or the command names its interpreter in a way that can't be replaced.
    """
    interpreter = python.absolute()  # not resolved: a virtual environment's is a link
    if not _answers(interpreter):
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


def _answers(program: Path) -> bool:
    """Tell whether a program is a Python: of another one, as `cat`, a script would only seem to make no step."""
    question = [str(program), "-c", "import sys; print(sys.version_info.major)"]
    try:
        done = subprocess.run(question, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.split()[-1:] == [b"3"]
