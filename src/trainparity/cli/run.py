"""Commands that run anybody's training script, recorded, without a change in it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from trainparity.cli.app import app
from trainparity.run.errors import RunError
from trainparity.stage import StoppedBySignal

Twins = Annotated[int, typer.Option(help="Runs more, with weights moved by half an ulp: the noise floor.", min=0)]
Steps = Annotated[int, typer.Option(help="Optimizer steps after which the script is stopped; 0: never.", min=0)]
Interval = Annotated[int, typer.Option(help="Trace every so many steps, besides the first 8.", min=1)]


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="Where the run is kept; an earlier one of ours is replaced.")],
    command: Annotated[list[str], typer.Argument(help="The command, after `--`.", metavar="-- COMMAND...")],
    twins: Twins = 3,
    steps: Steps = 40,
    interval: Interval = 1,
) -> None:
    """Record a training script as it is: `trainparity run runs/a -- python train.py --lr 1e-3`, or torchrun ...

    The optimizer and the module that owns its parameters are found just before the first training forward pass, on
    every rank. Output and exit code are the command's; the code is 0 where it was stopped after --steps, 2 if no
    optimizer step was seen, 130 or 143 after an interrupt. The command runs once more for each twin, so it must start
    the same way each time: remove checkpoints that it resumes from.
    """
    from trainparity.run.command import Command, Runner
    from trainparity.run.record import NothingRecorded, Settings, record_command

    def work() -> int:
        with Runner() as runner:
            try:
                kept = record_command(runner, Command(tuple(command)), folder, Settings(steps, interval, twins))
            except NothingRecorded as error:
                if not error.code:
                    raise
                print(f"trainparity: {error}", file=sys.stderr)
                return error.code
        return kept.exit_code

    raise typer.Exit(exit_code(work))


def exit_code(work: Callable[[], int]) -> int:
    """Do some work and return its exit code: 2 for an error, 128 + n for signal n."""
    try:
        return work()
    except RunError as error:
        print(f"trainparity: {error}", file=sys.stderr)
        return 2
    except StoppedBySignal as error:
        print(f"trainparity: {error}; nothing is kept", file=sys.stderr)
        return 128 + error.number
