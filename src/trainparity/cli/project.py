"""Commands about one's own project: begin one, and run its pipeline."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainparity import extras, starter
from trainparity import params as parameters
from trainparity.cli.app import command
from trainparity.cli.pipeline import order, reproduce, run_stages, unjudged
from trainparity.errors import UserError
from trainparity.pipeline.repair import dvc_root


@command
def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder; made if missing.", file_okay=False)] = Path(),
    dvc: Annotated[bool, typer.Option("--dvc/--no-dvc", help="With a DVC pipeline, which caches every run.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.")] = False,
) -> None:
    """Begin a project of your own: params.yaml, an example workload, and dvc.yaml; then `trainparity repro`.

    A project that began with --no-dvc gets its dvc.yaml, and keeps the rest as it is.
    """
    if dvc:
        extras.require("dvc")
    for path in starter.write(folder, dvc=dvc, force=force):
        print(f"wrote {path}")
    if dvc:
        if not dvc_root(folder):
            _init_dvc(folder)
        if (root := dvc_root(folder)) is not None:
            starter.write_templates(root / ".dvc")
    print("next: put your model into workload.py, then `trainparity repro`")


def _init_dvc(folder: Path) -> None:
    """Make the folder a DVC repository: in Git where there is a Git repository, else by itself."""
    here = folder.resolve()
    roots = [place for place in (here, *here.parents) if (place / ".git").exists()] if shutil.which("git") else []
    how = ["--no-scm"] if not roots else ["--subdir"] if roots[0] != here else []
    # Nothing of a project is told to anybody, unless its owner asks for that.
    environment = os.environ | {"DVC_NO_ANALYTICS": "1"}
    for arguments in (["init", "--quiet", *how], ["config", "--quiet", "core.analytics", "false"]):
        done = subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=folder, env=environment, check=False)
        if done.returncode:
            failed = f"`dvc {arguments[0]}` failed, see above"
            raise UserError(f"{folder}: {failed}; `trainparity repro` runs the pipeline after it")


@command
def repro(
    stages: Annotated[
        list[str] | None,
        typer.Argument(help="Of dvc.yaml, each with all that it needs; default: all stages.", metavar="[STAGE]..."),
    ] = None,
) -> int:
    """Run the pipeline of this folder: through DVC where there is a dvc.yaml, else every stage in its order.

    Exit code 2 where a stage could not do its work, or a reference failed, so that nothing was judged by it; else 0,
    whatever the verdicts: a configuration that fails is a result.
    """
    if not stages:
        extras.require("jinja2")  # which the last stage needs: better said before anything trains
    chosen = stages or []
    if Path(starter.PIPELINE).exists():
        code, params = reproduce(*chosen), Path(starter.PARAMS)
        if code or not params.exists():  # of a pipeline that is none of ours
            return code
        return unjudged(parameters.load(params), chosen)
    if stages:
        raise UserError(
            f"there is no {starter.PIPELINE} in {Path.cwd()}: without it `trainparity repro` takes no stage"
        )
    settings = parameters.load(Path(starter.PARAMS))
    return run_stages(order(list(settings.configs)), whole=True) or unjudged(settings, ())


@command
def plots(
    revisions: Annotated[
        list[str] | None,
        typer.Argument(
            help="Of Git, or names of experiments; default: the last commit and what has changed since.",
            metavar="[REVISION]...",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The page.", dir_okay=False)] = Path("plots.html"),
) -> None:
    """Draw what `dvc plots diff` shows of revisions or experiments as one page, which needs no network."""
    from trainparity.pipeline.plots import draw

    draw(revisions or [], out)
    print(f"wrote {out}")
