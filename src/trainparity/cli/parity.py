"""Commands about parity: are two runs the same training, and can the checker be trusted."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from trainparity.cli import answers, pages
from trainparity.cli.answers import JsonPath, MarkdownPath
from trainparity.cli.app import HtmlPath, Margin, command
from trainparity.environment import detect
from trainparity.records.controls import ControlReport
from trainparity.records.verdict import Verdict
from trainparity.report.terminal import Terminal
from trainparity.scratch import scratch


@command
def compare(
    left: Annotated[Path, typer.Argument(help="The reference's folder.", file_okay=False)],
    right: Annotated[Path, typer.Argument(help="The other run's folder.", file_okay=False)],
    floor: Annotated[
        list[Path] | None,
        typer.Option(help="A twin's folder; once for each. Those in LEFT/twins are used anyway.", file_okay=False),
    ] = None,
    margin: Margin = 16.0,
    json_path: JsonPath = None,
    markdown_path: MarkdownPath = None,
    html_path: HtmlPath = None,
) -> int:
    """Say whether two recorded runs are the same training: exit code 0 if so, 1 if not (and why), 2 if unclear."""
    pages.require(html_path)
    from trainparity.parity.compare import compare_folders, compare_in_detail  # imports torch

    answers.remove_earlier(json_path, markdown_path, html_path)  # what can't be read gets an answer, too
    if html_path:
        verdict, details = compare_in_detail(left, right, floor or (), margin=margin)
        tell(verdict, json_path, markdown_path)
        pages.write_comparison(html_path, verdict, details)
        return verdict.exit_code
    return tell(compare_folders(left, right, floor or (), margin=margin), json_path, markdown_path)


def tell(verdict: Verdict, json_path: Path | None, markdown_path: Path | None) -> int:
    """Write or print a verdict; return its exit code."""
    from trainparity.report import answer, markdown

    answers.give(
        json_path,
        verdict.as_json,
        markdown_path,
        lambda: markdown.verdict(verdict),
        lambda: answer.show(verdict, Terminal(highlight=False, soft_wrap=True)),
    )
    return verdict.exit_code


@command
def check(
    workload: Annotated[
        str,
        typer.Argument(help="A workload: package.module:Class, or one of ours, such as ddpm, resnet or superres."),
    ],
    against: Annotated[
        list[str],
        typer.Option(
            "--against",
            help="A candidate, such as ddp:2, gradaccum:4, fsdp-offload, compiled, dp, amp-bf16, ddp:2+gradaccum:2; "
            "several after each other or the option repeated.",
        ),
    ],
    more: Annotated[list[str] | None, typer.Argument(help="More candidates.", metavar="[CANDIDATE]...")] = None,
    options: Annotated[str, typer.Option(help="The workload's options, as YAML: '{scale: tiny}'.")] = "{}",
    dataset: Annotated[
        str | None, typer.Option(help="A dataset, as YAML; default: the workload's own, or digits.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="As YAML; a workload may make its own.")] = "{name: adamw, lr: 1.0e-3}",
    batch: Annotated[int, typer.Option(help="Samples of each optimizer step, over all ranks.", min=1)] = 32,
    steps: Annotated[int, typer.Option(help="Optimizer steps.", min=1)] = 20,
    window: Annotated[int, typer.Option(help="Steps judged from one shared start.", min=1)] = 20,
    clip_norm: Annotated[float | None, typer.Option(help="Largest norm of the gradient.", min=0)] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, mps or cuda.")] = "auto",
    seeds: Annotated[
        int, typer.Option(help="Seeds for learning curves, where the precision differs: at least 4; 0: none.")
    ] = 5,
    float64: Annotated[bool, typer.Option(help="Judge a difference, and what bf16 may hide, in float64.")] = True,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Of several settings joined by +, find those that make the difference.")
    ] = False,
    margin: Margin = 16.0,
    json_path: JsonPath = None,
    markdown_path: MarkdownPath = None,
    html_path: HtmlPath = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the runs and their dataset in this folder.", file_okay=False)
    ] = None,
) -> int:
    """Train a workload under several accelerations: exit code 0 if all are the same training, 1 if not, 2 unclear."""
    pages.require(html_path)
    from trainparity import api  # imports torch
    from trainparity.report import check as table
    from trainparity.report import markdown
    from trainparity.report.terminal import make_console

    terminal = Terminal(stderr=True, highlight=False)

    def progress(text: str) -> None:  # told first where all arguments are right and something trains
        answers.remove_earlier(json_path, markdown_path, html_path)
        terminal.print(Text(text, style="dim"))

    with _kept(keep) as folder:
        with answers.kept_apart(json_path, markdown_path):
            report = api.check(
                workload,
                [*against, *(more or ())],
                options=options,
                dataset=dataset,
                optimizer=optimizer,
                batch=batch,
                steps=steps,
                window=window,
                clip_norm=clip_norm,
                accelerator=accelerator,
                seeds=seeds,
                float64=float64,
                bisect=bisect,
                margin=margin,
                keep=folder,
                progress=progress,
            )
        answers.give(
            json_path,
            report.as_json,
            markdown_path,
            lambda: markdown.check(report),
            lambda: table.show(report, make_console()),
        )
        if html_path:
            pages.write_check(html_path, report, folder)
    return report.exit_code


@contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    """Yield a folder for runs; without one, one that goes afterwards."""
    if folder:
        yield folder
        return
    with scratch() as place:
        yield place


@command
def curves(
    left: Annotated[list[Path], typer.Argument(help="The reference's runs, one a seed.", file_okay=False)],
    against: Annotated[list[Path], typer.Option("--against", help="A run of the other recipe; once for each seed.")],
    json_path: JsonPath = None,
    markdown_path: MarkdownPath = None,
) -> int:
    """Say whether two recipes learn alike, over seeds: exit code 0 consistent, 1 drifted, 2 too few runs to say."""
    from trainparity.parity.curves import judge_runs
    from trainparity.report import markdown

    found = judge_runs(left, against)
    answers.remove_earlier(json_path, markdown_path)
    answers.give(
        json_path,
        found.as_json,
        markdown_path,
        lambda: markdown.curves(found),
        lambda: Terminal(highlight=False, soft_wrap=True).print(Text(found.sentence)),
    )
    return found.exit_code


_RESULTS, _SEEDS = Path("benchmarks/results/controls.json"), 50
"""Where the counts of so many seeds, or more, are kept by default."""


@command
def controls(
    seeds: Annotated[int, typer.Option(help="Seeds that each control is run with.", min=1)] = _SEEDS,
    json_path: Annotated[
        Path | None,
        typer.Option(
            "--json",
            help=f"Where the counts are written; `-`: to standard output. Default: {_RESULTS}; of fewer than {_SEEDS} "
            "seeds nowhere.",
        ),
    ] = None,
    markdown_path: MarkdownPath = None,
) -> int:
    """Try the checker on loops that are wrong on purpose, and on right ones; exit code 1 if it fails any."""
    from trainparity.controls.run import run_controls  # imports torch
    from trainparity.report import controls as table
    from trainparity.report import markdown
    from trainparity.report.terminal import make_console

    progress = Terminal(stderr=True, highlight=False)
    environment = detect()
    answers.remove_earlier(json_path, markdown_path)
    with scratch() as folder:
        found = run_controls(folder, range(seeds), progress=progress.print)
    report = ControlReport(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        fingerprint=environment.fingerprint,
        machine=environment.main_device,
        torch=environment.torch,
        seeds=seeds,
        controls=found,
    )
    answers.give(
        json_path or (_RESULTS if seeds >= _SEEDS else None),
        report.as_json,
        markdown_path,
        lambda: markdown.controls(report),
        lambda: table.show(report, make_console()),
    )
    return 0 if report.passed else 1
