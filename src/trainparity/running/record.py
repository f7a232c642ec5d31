"""Records a command: the run itself, and its twins, which measure the noise floor."""

from dataclasses import dataclass
from pathlib import Path

from trainparity import exits
from trainparity.attach.session import Plan, Recorded
from trainparity.records.numbers import counted
from trainparity.records.recorded import RunRecord
from trainparity.running.command import Command, Runner
from trainparity.running.errors import RunError
from trainparity.running.folder import replacing
from trainparity.running.session import session

_LAST_LINES = 20


@dataclass(frozen=True)
class Settings:
    """How a command is recorded."""

    steps: int
    interval: int
    twins: int
    outside: Path | None = None
    """A folder from which the recorded code may not come: the working tree beside a revision's."""
    float64: bool = False
    """Whether the script computes in float64, whatever format it asks for."""


def say(text: str) -> None:
    """Tell the user something between the lines of the command."""
    exits.say(f"trainparity: {text}")


def record_command(runner: Runner, command: Command, folder: Path, settings: Settings) -> RunRecord:
    """Record a command and its twins into `folder`; twins are left out if the command fails.

    Raises:
        RunError: no optimizer step was recorded, or a twin failed.
        StoppedBySignal: this process got a signal; nothing is kept, and an earlier run stays.
    """
    with replacing(folder) as unfinished:
        kept = record_main(runner, command, unfinished, settings, folder)
        if not kept.exit_code:
            kept = record_twins(runner, command, unfinished, settings, kept)
        kept.keep(unfinished)
    return kept


def record_main(runner: Runner, command: Command, folder: Path, settings: Settings, shown: Path) -> RunRecord:
    """Record the run itself into `folder`, which will be `shown`; raises as `record_command`."""
    found, code = _record(runner, command, folder, settings)
    say(f"{shown}: {_summary(found, code)}")
    return RunRecord(
        command=str(command),
        steps=found.steps,
        stopped=found.stopped,
        exit_code=code,
        twins=0,
        model=found.model,
        optimizer=found.optimizer,
        beside=found.beside,
        not_recorded=found.not_recorded,
        float64_takes_more=found.float64_takes_more,
    )


def record_twins(runner: Runner, command: Command, folder: Path, settings: Settings, run: RunRecord) -> RunRecord:
    """Record the twins of a run that lies in `folder`; raises as `record_command`."""
    for twin in range(1, settings.twins + 1):
        _record_twin(runner, command, folder, settings, twin)
    return run.model_copy(update={"twins": settings.twins})


def _record(runner: Runner, command: Command, folder: Path, settings: Settings, twin: int = 0) -> tuple[Recorded, int]:
    """Run a command once and record it; return what was recorded and the exit code, 0 if we stopped it.

    Raises:
        RunError: no optimizer step was recorded, or a name is no UTF-8.
    """
    plan = Plan(
        folder=folder.resolve(), steps=settings.steps, interval=settings.interval, twin=twin, outside=settings.outside
    )
    log = folder / "twins" / str(twin) / "output.txt" if twin else None
    for text in (str(command), str(plan.folder)):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RunError(f"{text!r} is no UTF-8, and no record can hold it: rename it") from None
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
    with session(plan, float64=settings.float64) as recording:
        code = runner.run(command, recording.environment(command), log)
        found = recording.recorded()
        if found is None:
            ended = f"; the command failed with exit code {code}" if code else ""
            raise NothingRecorded(f"no optimizer step was recorded: {recording.why_nothing()}{ended}", code)
        if found.outside:
            raise RunError(
                f"the revision's run ran code of the working tree: {', '.join(found.outside[:5])}. Name scripts by "
                "their place in the repository (train.py, not /home/me/train.py); where the project is installed from "
                "there (pip install -e), start the script as a module: python -m package.script"
            )
        if recording.second_training:
            found = found.model_copy(update={"not_recorded": [*found.not_recorded, _SECOND]})
    return found, 0 if found.stopped else code


_SECOND = "another training, as the command started more than one: record each by a command of its own"


class NothingRecorded(RunError):
    """The command made no optimizer step that could be recorded."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
        """The command's exit code."""


def _record_twin(runner: Runner, command: Command, folder: Path, settings: Settings, twin: int) -> None:
    """Run a command again as a twin of the run in `folder`; its output is kept in a file.

    Raises:
        RunError: it failed.
    """
    say(f"twin {twin} of {settings.twins}")
    log = folder / "twins" / str(twin) / "output.txt"
    try:
        _, code = _record(runner, command, folder, settings, twin)
    except NothingRecorded as error:
        raise RunError(f"twin {twin}: {error}\n{_tail(log)}") from None
    if code:
        raise RunError(f"twin {twin} failed with exit code {code}, the run itself did not\n{_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-_LAST_LINES:])


def _summary(found: Recorded, code: int) -> str:
    text = (
        f"{counted(found.steps, 'optimizer step')} of {found.model} ({found.num_parameters:,} parameters) "
        f"with {found.optimizer}"
    )
    text += "".join(f", {other}" for other in found.beside)
    if found.ended:
        text += f", recorded no further: {found.ended}"
    elif found.stopped:
        text += ", then stopped"
    elif not code:
        text += ", to the script's end"
    if code:
        text += f"; the command failed with exit code {code}"
    if found.not_recorded:
        text += f"; NOT recorded: {'; '.join(found.not_recorded)}"
    return text
