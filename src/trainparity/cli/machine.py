"""Commands about this machine and the pipeline: what can run here, is params.yaml right, what came out."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from trainparity import params as parameters
from trainparity import validation
from trainparity.cli.app import MarkdownPath, command
from trainparity.cli.pipeline import reproduce
from trainparity.environment import NODES, Environment, detect
from trainparity.errors import StoppedBySignal, UserError
from trainparity.pipeline.repair import repair
from trainparity.placement import Placement, Unavailable, place
from trainparity.records import layout
from trainparity.records.base import write_text
from trainparity.records.run import Status
from trainparity.report.terminal import Terminal, make_console

ParamsPath = Annotated[Path, typer.Argument(help="The params file.", dir_okay=False)]


@command
def doctor(
    path: ParamsPath = Path("params.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    mend: Annotated[
        bool, typer.Option("--repair", help="Move a damaged lock record of DVC aside; nothing else.")
    ] = False,
) -> None:
    """Say what this machine offers, which configurations can run on it, why the rest can't and what to do."""
    if mend:
        print(repair(Path.cwd()) or "nothing to repair")
        return
    params = parameters.load(path)
    environment = detect()
    found = {name: place(c, params.accelerator, environment) for name, c in params.configs.items()}
    if as_json:
        print(json.dumps(_as_json(environment, found), indent=1))
        return
    console = Terminal(highlight=False)
    console.print(_machine(environment), soft_wrap=True, markup=False)
    table = Table("configuration", "here", "device", box=None)
    for name, placement in found.items():
        table.add_row(name, *_cells(placement))
    console.print(table)
    for name, placement in found.items():
        for line in _explanation(placement):
            console.print(f"{name}: {line}", soft_wrap=True, markup=False)
    runs = sum(isinstance(placement, Placement) for placement in found.values())
    console.print(f"{runs} of {len(found)} configurations can run here; `dvc repro` skips the others and says so.")


def _machine(environment: Environment) -> str:
    gpus = ", ".join(f"{a.name} ({a.memory_mib} MiB)" for a in environment.accelerators) or "no GPU"
    cuda = f"CUDA {environment.cuda}" if environment.cuda else "no CUDA"
    return (
        f"{environment.processor}, {environment.cores} cores, {gpus}; {environment.system} {environment.machine}, "
        f"Python {environment.python}, torch {environment.torch} (built for {cuda}); "
        f"compiler: {environment.compiler or 'none'}; fingerprint {environment.fingerprint}"
    )


def _cells(placement: Placement | Unavailable) -> tuple[str, str]:
    if isinstance(placement, Unavailable):
        return "[red]cannot run[/]", "–"
    device = f"{placement.device} ({placement.backend})" if placement.backend else placement.device
    return "[yellow]emulated[/]" if placement.emulated else "[green]runs[/]", device


def _explanation(placement: Placement | Unavailable) -> list[str]:
    if isinstance(placement, Unavailable):
        return [placement.reason, f"  remedy: {placement.remedy}"]
    return [placement.emulated] if placement.emulated else []


def _as_json(environment: Environment, found: dict[str, Placement | Unavailable]) -> dict[str, object]:
    configurations = {
        name: {"runs": isinstance(placement, Placement), **vars(placement)} for name, placement in found.items()
    }
    facts = environment.model_dump(mode="json") | {"fingerprint": environment.fingerprint}
    return {"environment": facts, "configurations": configurations}


@command
def validate(path: ParamsPath = Path("params.yaml")) -> None:
    """Check a params file without running anything."""
    from trainparity import workloads  # imports torch

    params = parameters.load(path)
    workloads.load(params.workload.name, params.workload.options, path)
    print(f"{path}: fine: {len(params.configs)} configurations, {len(params.pairs)} pairs")


@command
def status() -> None:
    """Say what `dvc repro` would run again for a change of code, settings, packages or machine, and which change it is.

    DVC compares outputs as well: `dvc status` after `dvc repro probe` lists all stages that are not up to date.
    """
    from trainparity.pipeline import plans
    from trainparity.pipeline.plan import Planner

    params = parameters.load(Path("params.yaml"))
    lines = plans.explain(Planner(params, detect()).plans())
    print("\n".join(lines) or "no change since the last run")


@command
def train(
    name: Annotated[str, typer.Argument(help="An entry of `configs` in params.yaml.", metavar="CONFIGURATION")],
) -> int:
    """Train one configuration, and what it depends on, through the pipeline: exit code 0 trained, 1 failed, 2 skipped.

    A result that is there already is not made again, unless it is that the run failed.
    """
    path, state = Path("params.yaml"), layout.status(Path("runs"), name)
    params = parameters.load(path)
    if name not in params.configs:
        raise validation.ParamsError(f"{path}: configs: {validation.not_one_of(name, list(params.configs))}")
    before = state.stat().st_mtime_ns if state.exists() else None
    code = reproduce(f"train@{name}")
    there = not code and state.stat().st_mtime_ns == before
    if there and Status.read(state).status == "failed":
        code = reproduce(f"train@{name}", "--force", "--single-item")
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
    markdown_path: MarkdownPath = None,
) -> None:
    """Print the table of the last `dvc repro` again."""
    from trainparity.report import console, markdown
    from trainparity.report.schema import Summary

    summary = Summary.read(reports / "summary.json")
    if markdown_path:
        write_text(markdown_path, markdown.summary(summary))
    console.show(summary, make_console())
