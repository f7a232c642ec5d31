"""Records a command: the run itself, and its twins, which measure the noise floor."""

import sys
from dataclasses import dataclass
from pathlib import Path

from trainparity.attach.session import Plan, Recorded
from trainparity.run.command import Command, Runner
from trainparity.run.errors import RunError
from trainparity.run.folder import RunRecord, replacing
from trainparity.run.session import session

_LAST_LINES = 20


@dataclass(frozen=True)
class Settings:
    """How a command is recorded."""

    steps: int
    interval: int
    twins: int


def say(text: str) -> None:
    """Tell the user something between the lines of the command."""
    print(f"trainparity: {text}", file=sys.stderr, flush=True)


def record_command(runner: Runner, command: Command, folder: Path, settings: Settings) -> RunRecord:
    """Record a command and its twins into `folder`; twins are left out if the command fails.

    Raises:
        RunError: no optimizer step was seen, or a twin failed.
        StoppedBySignal: this process got a signal; nothing is kept, and an earlier run stays.
    """
    with replacing(folder) as unfinished:
        found, code = record_once(runner, command, unfinished, settings)
        kept = RunRecord(
            command=str(command),
            steps=found.steps,
            stopped=found.stopped,
            exit_code=code,
            twins=0 if code else settings.twins,
            model=found.model,
            optimizer=found.optimizer,
            not_recorded=found.not_recorded,
        )
        say(f"{folder}: {_summary(found, settings)}")
        for twin in range(1, kept.twins + 1):
            record_twin(runner, command, unfinished, settings, twin)
        kept.keep(unfinished)
    return kept


def record_once(
    runner: Runner, command: Command, folder: Path, settings: Settings, twin: int = 0
) -> tuple[Recorded, int]:
    """Run a command once and record it; return what was recorded and the exit code, 0 if we stopped it.

    Raises:
        RunError: no optimizer step was seen.
    """
    plan = Plan(folder=folder.resolve(), steps=settings.steps, interval=settings.interval, twin=twin)
    log = folder / "twins" / str(twin) / "output.txt" if twin else None
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
    with session(plan) as recording:
        code = runner.run(command, recording.environment, log)
        found = recording.recorded()
        if found is None:
            ended = f"; the command failed with exit code {code}" if code else ""
            raise NothingRecorded(f"no optimizer step was seen: {recording.why_nothing()}{ended}", code)
        if recording.second_training and not twin:
            say("the command started more than one training; the first is recorded")
    return found, 0 if found.stopped else code


class NothingRecorded(RunError):
    """The command made no optimizer step that could be recorded."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        """The command's exit code."""


def record_twin(runner: Runner, command: Command, folder: Path, settings: Settings, twin: int) -> None:
    """Run a command again as a twin of the run in `folder`; its output is kept in a file.

    Raises:
        RunError: it failed.
    """
    say(f"twin {twin} of {settings.twins}")
    log = folder / "twins" / str(twin) / "output.txt"
    try:
        _, code = record_once(runner, command, folder, settings, twin)
    except NothingRecorded as error:
        raise RunError(f"twin {twin}: {error}\n{_tail(log)}") from None
    if code:
        raise RunError(f"twin {twin} failed with exit code {code}, the run itself did not\n{_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-_LAST_LINES:])


def _summary(found: Recorded, settings: Settings) -> str:
    text = (
        f"{found.steps} optimizer steps of {found.model} ({found.num_parameters:,} parameters) with {found.optimizer}"
    )
    text += ", then stopped" if found.stopped else ", to the script's end"
    if found.not_recorded:
        text += f"; NOT recorded, as one model and optimizer are: {'; '.join(found.not_recorded)}"
    return text
