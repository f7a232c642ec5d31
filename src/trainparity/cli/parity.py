"""Commands about parity: are two runs the same training, and can the checker be trusted."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainparity.cli.app import app
from trainparity.environment import detect
from trainparity.records import ControlReport


@app.command()
def compare(
    left: Annotated[Path, typer.Argument(help="The reference's folder.", file_okay=False)],
    right: Annotated[Path, typer.Argument(help="The other run's folder.", file_okay=False)],
    floor: Annotated[
        list[Path] | None,
        typer.Option(help="A twin's folder; once for each. Those in LEFT/twins are used anyway.", file_okay=False),
    ] = None,
    margin: Annotated[float, typer.Option(help="`equivalent`: within so many times the noise floor.", min=1)] = 16.0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the answer as JSON.", dir_okay=False)] = None,
) -> None:
    """Say whether two recorded runs are the same training: exit code 0 if so, 1 if not (and why), 2 if unclear."""
    from trainparity.parity.folders import compare_folders  # imports torch
    from trainparity.report import answer

    comparison = compare_folders(left, right, floor or (), margin=margin)
    if json_path:
        comparison.write(json_path)
    answer.show(comparison, Console(highlight=False, soft_wrap=True))
    raise typer.Exit(comparison.exit_code)


@app.command()
def controls(
    seeds: Annotated[int, typer.Option(help="Seeds that each control is run with.", min=1)] = 50,
    output: Annotated[Path, typer.Option(help="Where the counts are written.", dir_okay=False)] = Path(
        "benchmarks/results/controls.json"
    ),
) -> None:
    """Try the checker on loops that are wrong on purpose, and on right ones; exit code 1 if it fails any."""
    from trainparity.controls.run import run_controls  # imports torch
    from trainparity.report import controls as table
    from trainparity.report.console import make_console

    console = make_console()
    environment = detect()
    with tempfile.TemporaryDirectory(prefix="trainparity-") as folder:
        found = run_controls(Path(folder), range(seeds), progress=console.print)
    report = ControlReport(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        fingerprint=environment.fingerprint,
        machine=next((a.name for a in environment.accelerators), environment.processor),
        torch=environment.torch,
        seeds=seeds,
        controls=found,
    )
    report.write(output)
    table.show(report, console)
    raise typer.Exit(0 if report.passed else 1)
