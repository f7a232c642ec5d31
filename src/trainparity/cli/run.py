"""Commands that run anybody's training script, recorded, without a change in it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from trainparity.cli import answers, pages
from trainparity.cli.app import HtmlPath, Margin, command
from trainparity.errors import StoppedBySignal, UserError
from trainparity.running.errors import RunError

Twins = Annotated[int, typer.Option(help="Runs more, with weights moved by half an ulp: the noise floor.", min=0)]
Steps = Annotated[int, typer.Option(help="Optimizer steps after which the script is stopped; 0: never.", min=0)]
Interval = Annotated[int, typer.Option(help="Trace every so many steps, besides the first 8.", min=1)]


@command
def run(
    folder: Annotated[Path, typer.Argument(help="Where the run is kept; of an earlier one our files are replaced.")],
    command: Annotated[list[str], typer.Argument(help="The command, after `--`.", metavar="-- COMMAND...")],
    twins: Twins = 3,
    steps: Steps = 40,
    interval: Interval = 1,
    float64: Annotated[
        bool, typer.Option("--float64", help="Have the script compute in float64: casts and autocast do nothing.")
    ] = False,
) -> int:
    """Record a training script as it is: `trainparity run runs/a -- python train.py --lr 1e-3`, or torchrun ...

    The optimizer and the module that owns its parameters are found just before the first training forward pass, on
    every rank. Output and exit code are the command's; the code is 0 where it was stopped after --steps, 2 if it ended
    well and made no optimizer step that was recorded, 130 or 143 after an interrupt. The command runs once more for
    each twin, so it must start the same way each time: remove checkpoints that it resumes from.
    """
    from trainparity.running.command import Command, Runner
    from trainparity.running.folder import holds_run
    from trainparity.running.record import NothingRecorded, Settings, record_command

    stays = f"; {folder} holds the earlier run still" if holds_run(folder) else ""

    def work() -> int:
        with Runner(several=twins > 0) as runner:
            try:
                kept = record_command(
                    runner, Command(tuple(command)), folder, Settings(steps, interval, twins, float64=float64)
                )
            except NothingRecorded as error:
                if not error.code:
                    raise
                print(f"trainparity: {error}{stays}", file=sys.stderr)
                return error.code
        return kept.exit_code

    return _said(work, stays=stays)


@command
def ab(
    commands: Annotated[
        list[str],
        typer.Argument(
            help="Both commands, quoted; one command for two revisions or interpreters.", metavar="COMMAND..."
        ),
    ],
    base: Annotated[str | None, typer.Option(help="A: the command in this git revision.")] = None,
    test: Annotated[str | None, typer.Option(help="B: the command in this git revision.")] = None,
    link: Annotated[
        list[Path] | None,
        typer.Option(help="A path that no revision holds, such as data, to be seen in both; once for each."),
    ] = None,
    python_a: Annotated[Path | None, typer.Option("--python-a", help="A: the command under this interpreter.")] = None,
    python_b: Annotated[Path | None, typer.Option("--python-b", help="B: the command under this interpreter.")] = None,
    twins: Twins = 3,
    steps: Steps = 40,
    interval: Interval = 1,
    margin: Margin = 16.0,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Of several options that differ, find those that make the difference.")
    ] = False,
    float64: Annotated[
        bool,
        typer.Option(help="Record both in float64 too where rounding hides what they do, or no cause is plain."),
    ] = True,
    ops: Annotated[
        bool, typer.Option("--ops", help="Of a difference, find the first operator that returns something else.")
    ] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the answer as JSON.", dir_okay=False)] = None,
    markdown_path: Annotated[
        Path | None, typer.Option("--markdown", help="Write the table as Markdown, for a CI job.", dir_okay=False)
    ] = None,
    html_path: HtmlPath = None,
    folder: Annotated[
        Path | None, typer.Option(help="Keep both runs here, as `a` and `b`; default: .trainparity/ab/<time>.")
    ] = None,
) -> int:
    """Record two commands and say whether they are the same training: exit code 0 if so, 1 if not, 2 if unclear.

    trainparity ab "python train.py" "torchrun --nproc-per-node 2 train_ddp.py"

    trainparity ab --base main --test HEAD "python train.py"      (or -- python train.py)

    trainparity ab --python-a old/bin/python --python-b new/bin/python "python train.py"

    An interrupt is 130 or 143, an error 2. Worktrees of revisions are temporary.
    """
    pages.require(html_path)
    answers.refuse_stdout(json_path, markdown_path)
    from trainparity.cli.parity import tell
    from trainparity.cli.questions import Questions
    from trainparity.running.ab import record_both
    from trainparity.running.command import Runner
    from trainparity.running.folder import folder_of_pair
    from trainparity.running.pairs import commands_of
    from trainparity.running.record import Settings, say

    if bisect and len(commands) != 2:
        raise UserError("trainparity: --bisect is for two commands; between two revisions, `git bisect run` is")

    kept: list[str] = []

    def work() -> int:
        with (
            Runner() as runner,
            commands_of(commands, (base, test), link or (), (python_a, python_b)) as pair,
            folder_of_pair(folder) as place,
        ):
            answers.remove_earlier(json_path, markdown_path, html_path)
            settings = Settings(steps, interval, twins, outside=pair.outside)
            asking = Questions(runner, pair.commands, place, settings, margin)
            recorded = record_both(runner, pair.commands, place, settings, asking.equal)
            kept.append(f"both runs are kept: trainparity compare {recorded[0]} {recorded[1]}")
            verdict = asking.judge(*recorded)
            if float64:
                asking, verdict = asking.where_it_can_be_judged(verdict)
            as_recorded = verdict.verdict
            if float64 and verdict.verdict == "different":
                verdict = asking.in_float64(verdict)
            if verdict.verdict == "different":
                verdict = asking.by_operator(verdict) if ops else verdict
                verdict = asking.by_setting(verdict) if bisect else verdict
            left, right = asking.place / "a", asking.place / "b"
            code = tell(verdict, json_path, markdown_path)
            if html_path:
                from trainparity.parity.compare import describe_folders  # imports torch

                pages.write_comparison(html_path, verdict, describe_folders(left, right))
            note = "" if verdict.verdict == as_recorded else f" (without float64's answer: {as_recorded})"
            say(f"to see it again: trainparity compare {left} {right}{note}")
            return code

    return _said(work, kept)


def _said(work: Callable[[], int], kept: Sequence[str] = (), stays: str = "") -> int:
    """Do some work; what ends it is told apart from the command's own output.

    Args:
        work: Returns the exit code.
        kept: Says then what a signal has left, if anything.
        stays: Says what stays where nothing new is kept.
    """
    try:
        return work()
    except RunError as error:
        raise UserError(f"trainparity: {error}{stays}") from None
    except StoppedBySignal as error:
        raise StoppedBySignal(error.number, *kept or [f"nothing is kept{stays}"]) from None
