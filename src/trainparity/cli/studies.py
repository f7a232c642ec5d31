"""Commands about the studies: run the articles' experiments and print their claims."""

import json
import re
import sys
from contextlib import chdir
from pathlib import Path
from typing import Annotated

import typer

from trainparity import params as parameters
from trainparity.cli import answers
from trainparity.cli.app import command
from trainparity.cli.pipeline import reproduce
from trainparity.environment import detect
from trainparity.errors import StoppedBySignal, UserError
from trainparity.records.claims import ClaimReport
from trainparity.records.files import write_text
from trainparity.report import markdown
from trainparity.starter import PIPELINE
from trainparity.validation import ParamsError, not_one_of

STUDIES = Path("studies")

_SIGNALS = 128
"""Exit codes above it tell of the signal that ended a pipeline."""


@command
def studies(
    names: Annotated[
        list[str] | None, typer.Argument(help="Folders of `studies`; none: all.", metavar="[STUDY]...")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="smoke, laptop or article; default: article where there is a CUDA GPU, else laptop."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Keep each study's claims in this folder, as <study>-<scale>.json.", file_okay=False),
    ] = None,
    json_path: answers.JsonPath = None,
    markdown_path: answers.MarkdownPath = None,
) -> int:
    """Run the articles' studies through their pipelines and print every claim: exit code 2 if one did not end.

    The scale is written into each study's params.yaml, so that `dvc repro` uses it too.
    """
    there = sorted(path.parent.name for path in STUDIES.glob("*/dvc.yaml"))
    if not there:
        raise UserError(f"{STUDIES}: no such folder here: run this in a clone of trainparity, which has the studies")
    for name in names or []:
        if name not in there:
            raise ParamsError(f"{STUDIES}: {not_one_of(name, there)}")
    chosen = scale or ("article" if any(a.kind == "cuda" for a in detect().accelerators) else "laptop")
    for name in names or there:
        _set_scale(STUDIES / name / "params.yaml", chosen)
    answers.remove_earlier(json_path, markdown_path)
    with answers.kept_apart(json_path, markdown_path):
        failed = [name for name in names or there if not _end(name)]
    reports = [_claims(name) for name in names or there if name not in failed]
    answers.give(
        json_path,
        lambda: json.dumps([report.model_dump(mode="json") for report in reports], indent=1) + "\n",
        markdown_path,
        lambda: "\n".join(markdown.claims(report) for report in reports),
        lambda: _show(reports),
    )
    if save:
        for report in reports:
            report.write(save / f"{report.study}-{chosen}.json")
    for name in failed:
        print(f"{name}: did not end; `dvc repro` in {STUDIES / name} resumes it", file=sys.stderr)
    return 2 if failed else 0


def _set_scale(path: Path, scale: str) -> None:
    """Change the line `scale:` of a params file and nothing else; the file must be valid at that scale."""
    parameters.load(path, scale)
    text = path.read_text(encoding="utf-8")
    changed = re.sub(r"(?m)^scale:\s*[\w-]+", f"scale: {scale}", text, count=1)
    if changed != text:
        write_text(path, changed)


def _end(name: str) -> bool:
    """Run a study's pipeline; tell whether it ended.

    Raises:
        StoppedBySignal: a signal ended it, and so all that were asked for: its user wants the next one as little.
    """
    print(f"study {name}", flush=True)
    with chdir(STUDIES / name):  # the studies are a DVC project of their own
        code = reproduce(PIPELINE)
    if code > _SIGNALS:
        raise StoppedBySignal(code - _SIGNALS, f"`dvc repro` in {STUDIES / name} resumes it")
    return code == 0


def _claims(name: str) -> ClaimReport:
    return ClaimReport.read(STUDIES / name / "reports" / "claims.json")


def _show(reports: list[ClaimReport]) -> None:
    from trainparity.report.console import show_claims
    from trainparity.report.terminal import make_console

    console = make_console()
    for report in reports:
        show_claims(report, console)
