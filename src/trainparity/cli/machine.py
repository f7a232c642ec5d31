"""Commands about the pipeline: is params.yaml right, what would run again, one configuration, what came out."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from trainparity import params as parameters
from trainparity import validation, workloads
from trainparity.cli import answers
from trainparity.cli.app import ParamsPath, command
from trainparity.cli.pipeline import require_stages, train_one
from trainparity.environment import NODES, detect
from trainparity.errors import StoppedBySignal, UserError
from trainparity.params import reference_name
from trainparity.records import layout
from trainparity.records.numbers import counted
from trainparity.records.run import Status
from trainparity.report.terminal import make_console
from trainparity.starter import PIPELINE


@command
def validate(path: ParamsPath = Path("params.yaml")) -> None:
    """Check a params file without running anything."""
    params = parameters.load(path)
    workloads.check(params.workload.name, params.workload.options, path)
    print(f"{path}: fine: {counted(len(params.configs), 'configuration')}, {counted(len(params.pairs), 'pair')}")


@command
def status(json_path: answers.JsonPath = None) -> None:
    """Say what `dvc repro` would run again for a change of code, settings, packages or machine, and which change it is.

    DVC compares outputs as well: `dvc status` after `dvc repro probe` lists all stages that are not up to date.
    """
    from trainparity.pipeline import plans, schedule

    params = parameters.load(Path("params.yaml"))
    require_stages()
    answers.remove_earlier(json_path)
    made = plans.make(params, detect())
    changed, stages = plans.changes(made), plans.to_run(made, params)
    time = schedule.seconds(stages)
    answer = {
        "changes": [change._asdict() for change in changed],
        "to_run": [name.replace("/", "@") for name in stages],
        "seconds": time,
    }
    lines = [change.sentence for change in changed]
    if stages:
        how_long = "" if time is None else f", about {schedule.duration(time)}"
        unknown = Path(PIPELINE).exists() and not plans.LOCK.exists()
        why = f": there is no {plans.LOCK}, which says what has run" if unknown else ""
        lines.append(f"{counted(len(stages), 'stage')} to run{how_long}{why}")
    said = "\n".join(lines) or "no change since the last run"
    answers.give(json_path, lambda: json.dumps(answer, indent=1) + "\n", None, str, lambda: print(said))


def _configurations(typed: str) -> list[str]:
    """Return the configurations that a shell offers for what was typed so far; none without valid settings here."""
    with suppress(UserError, OSError):
        return [name for name in parameters.load(Path("params.yaml")).configs if name.startswith(typed)]
    return []


@command
def train(
    name: Annotated[
        str,
        typer.Argument(
            help="An entry of `configs` in params.yaml.", metavar="CONFIGURATION", autocompletion=_configurations
        ),
    ],
    again: Annotated[bool, typer.Option("--again", help="Make a result that is there already again.")] = False,
) -> int:
    """Train one configuration, and what it depends on, through the pipeline: exit code 0 trained, 1 failed, 2 skipped.

    A result that is there already is not made again, unless it is that the run failed. Where there is no dvc.yaml, it
    always is. `reference-<name>` trains the references.
    """
    path, state = Path("params.yaml"), layout.status(Path("runs"), name)
    params = parameters.load(path)
    if name not in (names := [*params.configs, *map(reference_name, params.references)]):
        raise validation.ParamsError(f"{path}: configs: {validation.not_one_of(name, names)}")
    before = state.stat().st_mtime_ns if state.exists() else None
    code = train_one(name, again=again)
    there = not (code or again) and state.stat().st_mtime_ns == before
    if there and Status.read(state).status == "failed":
        code = train_one(name, again=True)
    if code:
        return code
    status = Status.read(state)
    if status.status != "trained":
        print("; ".join(filter(None, (f"{name}: {status.outcome}", status.remedy))), file=sys.stderr)
    return {"trained": 0, "failed": 1, "skipped": 2}[status.status]


@command
def join() -> None:
    """Take part in the runs of another node: on every node but the first, with the project's folder shared.

    TRAINPARITY_NODES says how many nodes there are and TRAINPARITY_RENDEZVOUS the first one's host:port, on all nodes
    the same; the first runs the pipeline as ever.
    """
    from trainparity.launch import nodes, processes

    def run(invitation: nodes.Invitation) -> None:
        print(f"joining {invitation.spec.parent.name}", flush=True)
        try:
            codes = processes.run_ranks(invitation, found, first=False)
        except UserError as error:
            print(error, file=sys.stderr)
        else:
            print(
                f"{invitation.spec.parent.name}: ranks ended with exit codes {codes}" if codes else "done", flush=True
            )

    found = nodes.Nodes.from_environment()
    if found.count == 1:
        raise UserError(f"{NODES} is not set: with one node there is nothing to join")
    with suppress(StoppedBySignal, KeyboardInterrupt):
        nodes.join(found, run)


@command
def show(
    reports: Annotated[Path, typer.Argument(help="The folder of reports.", file_okay=False)] = Path("reports"),
    json_path: answers.JsonPath = None,
    markdown_path: answers.MarkdownPath = None,
) -> None:
    """Print the table of the last run of the pipeline again."""
    from trainparity.report import console, markdown
    from trainparity.report.schema import Summary

    summary = Summary.read(reports / "summary.json")
    answers.remove_earlier(json_path, markdown_path)
    answers.give(
        json_path,
        summary.as_json,
        markdown_path,
        lambda: markdown.summary(summary),
        lambda: console.show(summary, make_console()),
    )
