"""A command as the user gave it, and its run: output and exit code passed on, signals handed to it."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from trainparity.errors import StoppedBySignal
from trainparity.exits import say, shell_code
from trainparity.running import secrecy
from trainparity.running.errors import RunError
from trainparity.running.standard_input import StandardInput
from trainparity.stopping import handle_stops

_PATIENCE = 3
"""Signals after which the command is killed."""
_GRACE_S = 60.0
"""How long a stopped command may take to end before it is killed: torchrun gives its ranks 30 seconds."""
_LEFT_OVER_S = 5.0
"""How long what a stopped command leaves behind may take to end."""
_POLL_S = 1.0

_OF_A_SHELL = ("<", ">", ">>", "<<<", "|", "||", "&", "&&", ";", "2>", "2>&1")
"""Words by which a shell joins or redirects commands: without one a program would be given them."""


@dataclass(frozen=True)
class Command:
    """What to run, where and with what besides this process's environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path.cwd)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a command as a shell's user writes it: words, quotes and leading VARIABLE=value; no shell runs it."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise RunError(f"{text!r}: {error}") from None
        environment = dict[str, str]()
        while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
            name, _, environment[name] = words.pop(0).partition("=")
        if not words or not words[0]:
            raise RunError(f"{text!r} is no command")
        if operator := next((word for word in words if word in _OF_A_SHELL), None):
            raise RunError(f"{text!r}: no shell runs it, whose {operator} is; write sh -c and the command in quotes")
        return cls(tuple(words), environment)

    @classmethod
    def of(cls, words: Sequence[str | os.PathLike[str]]) -> Self:
        """Take a command in words."""
        if not words:
            raise RunError("[] is no command")
        return cls(tuple(os.fspath(word) for word in words))

    def __str__(self) -> str:
        """Return it as a shell's user writes it, to be shown and kept: what is named a secret is not told."""
        variables = [secrecy.variable(name, value) for name, value in self.environment.items()]
        return shlex.join([*variables, *secrecy.words(self.arguments)])


class Runner:
    """Runs commands one after the other. A signal goes to the one that runs, and ends the whole.

    Each command gets a session of its own, so that Ctrl-C reaches it once, and all of its processes: from us.
    """

    def __init__(self, *, several: bool = True) -> None:
        """Take whether several commands will run, which must all read the same from standard input."""
        self._input = StandardInput(several=several)
        self._received: list[int] = []
        self._group = 0
        self._starting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = handle_stops(self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, command: Command, environment: Mapping[str, str], log: Path | None = None) -> int:
        """Run a command to its end; its output goes to ours, or into `log`.

        Returns:
            The exit code; 128 + n if signal n ended it.

        Raises:
            RunError: it can't be started.
            StoppedBySignal: this process got a signal; the command has ended.
        """
        whole = {**os.environ, **command.environment, **environment}
        program = shutil.which(command.arguments[0], path=whole.get("PATH"))
        if program is None and not (command.folder / command.arguments[0]).exists():
            raise RunError(f"{command.arguments[0]}: command not found")
        output = log.open("wb") if log else None
        self._starting = True
        try:
            process = subprocess.Popen(
                command.arguments,
                env=whole,
                cwd=command.folder,
                stdin=self._input.next(unattended=log is not None),
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"{command.arguments[0]}: {error.strerror}") from None
        finally:
            self._starting = False
            if output:
                output.close()
        self._group = process.pid
        for number in self._received:  # came while the command was starting
            self._send(number)
        code = self._wait(process)
        if self._received:
            self._end_group()
            raise StoppedBySignal(self._received[0])
        self._group = 0
        return shell_code(code)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the command's end; one that does not end after a signal is killed."""
        deadline: float | None = None
        while True:
            try:
                return process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                if self._received and deadline is None:
                    deadline = time.monotonic() + _GRACE_S
                    end = f"for at most {_GRACE_S:g} s; further signals reach it, and the third kills it"
                    say(f"trainparity: waiting for the command to end, {end}")
                if deadline is not None and time.monotonic() > deadline:
                    self._send(signal.SIGKILL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        if self._group:
            self._send(number if len(self._received) < _PATIENCE else signal.SIGKILL)
        elif not self._starting and len(self._received) == 1:  # later ones must not disturb the tidying up
            raise StoppedBySignal(number)

    def _send(self, number: int) -> bool:
        """Send a signal to all processes of the command; tell whether one is left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._group, number)
            return True
        return False

    def _end_group(self) -> None:
        """Wait for what the stopped command started, then kill it."""
        deadline = time.monotonic() + _LEFT_OVER_S
        while self._send(0) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._send(signal.SIGKILL)
        self._group = 0
