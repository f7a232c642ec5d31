"""`trainparity export`: verdicts and distances to TensorBoard and MLflow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from trainparity import exits, extras
from trainparity.cli.app import command
from trainparity.errors import UserError
from trainparity.records.base import RecordError
from trainparity.records.check import CheckReport
from trainparity.records.detail import DETAILS, Detail
from trainparity.records.numbers import counted
from trainparity.records.verdict import ParityReport, Verdict


class Answers(NamedTuple):
    """Verdicts by pair, and their details by pair and model."""

    name: str
    verdicts: Mapping[str, Verdict]
    details: Mapping[str, Mapping[str, Detail]]


@command
def export(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="Two recorded runs; or a folder of the pipeline's reports; or a file that --json wrote.",
            metavar="LEFT RIGHT | REPORTS | ANSWER",
        ),
    ],
    tensorboard: Annotated[
        Path | None, typer.Option(help="Write event files into this folder.", file_okay=False)
    ] = None,
    mlflow: Annotated[str | None, typer.Option(help="Write a run to this tracking server or store.")] = None,
) -> None:
    """Write verdicts and distances where trainings are watched: TensorBoard, MLflow."""
    if not (tensorboard or mlflow):
        raise UserError("nothing to write to: name --tensorboard FOLDER or --mlflow URI")
    for wanted, module in ((tensorboard, "tensorboard"), (mlflow, "mlflow")):
        if wanted:
            extras.require(module)
    from trainparity import exporting

    found = _read(sources)
    if mlflow and mlflow.startswith("http"):
        exits.say(f"trainparity: writing to {mlflow}; a server that can't be reached is asked for some minutes")
    with exporting.writers(tensorboard, mlflow, found.name) as writers:
        for writer in writers:
            exporting.export(found.verdicts, found.details, writer)
    places = " and ".join(map(str, filter(None, (tensorboard, mlflow))))
    print(f"{found.name}: {counted(len(found.verdicts), 'verdict')} to {places}")


def _read(sources: list[Path]) -> Answers:
    """Read what the arguments name.

    Raises:
        UserError: they name nothing that can be read.
    """
    if len(sources) == 2:
        return _compared(*sources)
    if len(sources) > 2:
        raise UserError(f"{len(sources)} paths: name two recorded runs, a folder of reports or a file of an answer")
    [source] = sources
    if source.is_dir():
        return _reports(source)
    try:
        return Answers(source.stem, {source.stem: Verdict.read(source)}, {})
    except RecordError as error:
        try:
            return Answers(source.stem, CheckReport.read(source).results, {})
        except RecordError:
            raise error from None


def _compared(left: Path, right: Path) -> Answers:
    from trainparity.parity.compare import compare_in_detail  # imports torch

    name = f"{left.name}-{right.name}"
    verdict, details = compare_in_detail(left, right)
    return Answers(name, {name: verdict}, {name: details})


def _reports(folder: Path) -> Answers:
    report = ParityReport.read(folder / "parity.json")
    paths = {name: folder / DETAILS / f"{name}.json" for name in report.pairs}
    details = {name: {"": Detail.read(path)} for name, path in paths.items() if path.exists()}
    return Answers(folder.resolve().parent.name, report.pairs, details)
