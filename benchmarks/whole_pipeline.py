"""What `make repro` costs after installation: from nothing, over the same steps as plain training, with nothing new.

Each round clones the project and begins with empty caches. Plain training makes as many optimizer steps as the
pipeline does, each configuration in a process of its own, without trace, twins and timing.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pairs import Target, exactly, seconds, take_turns
from results_file import save

from trainparity import params
from trainparity.environment import detect
from trainparity.params import Configuration, Params
from trainparity.placement import Placement, Unavailable, place
from trainparity.report.speedup import Ratio
from trainparity.training.spec import WORKER, RunSpec

ROOT = Path(__file__).resolve().parents[1]
STAGES = ["-m", "trainparity.stages"]
IN_TURNS = ["-m", "trainparity.pipeline.dvc", "repro"]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Clones that are made, each from nothing.")] = 3,
    turns: Annotated[int, typer.Option(min=6, help="Of the pipeline when nothing is new.")] = 8,
) -> None:
    """Measure, print and write benchmarks/results/whole-pipeline-<device>.json."""
    whole, plain = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder) / "project"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(project)], check=True)
            whole.append(seconds(partial(_run, project, "whole", ["-m", "trainparity.cli", "repro"])))
            plain.append({name: round(s, 1) for name, s in _plain(project).items()})
            commands = [IN_TURNS, [*STAGES, "probe"]]
            lanes = [partial(_run, project, "whole", command) for command in commands]
            nothing_new, probe = take_turns(lanes, turns, warm_up=1)
            imports = _imports_torch(project)
    added = statistics.median(nothing_new) - statistics.median(probe)
    ratios = [one / sum(parts.values()) for one, parts in zip(whole, plain, strict=True)]
    result = {
        "rounds": rounds,
        "turns": turns,
        "repro_s": [round(one, 1) for one in whole],
        "plain_s": plain,
        "nothing_new_s": round(statistics.median(nothing_new), 3),
        "probe_s": round(statistics.median(probe), 3),
        "probe_imports_torch": imports,
    }
    print(result)
    print(save("whole-pipeline", result, _targets(_range(whole), _range(ratios), added)))


def _run(project: Path, cache: str, command: list[str]) -> None:
    subprocess.run(
        [sys.executable, *command], cwd=project, env=_environment(project, cache), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip


def _environment(project: Path, cache: str) -> dict[str, str]:
    """Return variables: no engine, no other cache than this folder's, and the stages' Python first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    compiled = str(project / ".trainparity" / cache)
    return os.environ | {"PATH": path, "DOCKER_HOST": "unix:///nonexistent", "TORCHINDUCTOR_CACHE_DIR": compiled}


def _plain(project: Path) -> dict[str, float]:
    """Return the seconds of each run's steps as plain training."""
    settings, environment = params.load(project / "params.yaml"), detect()
    runs = {"reference": settings.reference_configuration("fp32")} | settings.configs
    placed = {name: place(one, settings.accelerator, environment) for name, one in runs.items()}
    there = {name: where for name, where in placed.items() if not isinstance(where, Unavailable)}
    beside = sum(not where.emulated for where in there.values()) - 1
    steps = {name: _steps(settings, beside if name == "reference" else None) for name in there}
    found = {}
    for name, where in there.items():
        spec = _spec(project, settings, name, runs[name], where, steps[name])
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(runs[name].num_processes)]
        command = [*(launcher if runs[name].distributed else []), "-m", WORKER, str(spec)]
        found[name] = seconds(partial(_run, project, "plain", command))
    return found


def _steps(settings: Params, beside: int | None) -> int:
    """Return the steps that the pipeline makes of a run; `beside`: of a reference beside so many configurations."""
    assert settings.train.max_steps
    timed = settings.timing.warmup_steps + settings.timing.steps
    if beside is None:
        return settings.train.max_steps + timed
    return (1 + settings.parity.twins) * settings.train.max_steps + (1 + beside) * timed


def _spec(
    project: Path, settings: Params, name: str, configuration: Configuration, placement: Placement, steps: int
) -> Path:
    work = project / ".trainparity" / "plain" / name
    work.mkdir(parents=True)
    spec = RunSpec(
        run=name,
        workload=settings.workload,
        dataset=settings.dataset,
        train=settings.train.model_copy(update={"max_steps": steps, "epochs": 1000}),
        parity=settings.parity,
        traced=False,
        timing=None,
        configuration=configuration,
        placement=placement,
        fingerprint="",
        code="",
        device_name="",
        data=Path("data/prepared"),
        work=work,
        step_deadline_s=None,
    )
    spec.write(work / "spec.json")
    return work / "spec.json"


def _imports_torch(project: Path) -> bool:
    command = [sys.executable, "-X", "importtime", *STAGES, "probe"]
    done = subprocess.run(
        command, cwd=project, env=_environment(project, "whole"), capture_output=True, text=True, check=True
    )
    return any(line.split("|")[-1].strip() == "torch" for line in done.stderr.splitlines())


def _range(values: list[float]) -> Ratio:
    """Return the median with smallest and largest: too few to say more."""
    return Ratio(statistics.median(values), min(values), max(values))


def _targets(whole: Ratio, over_plain: Ratio, added: float) -> list[Target]:
    return [
        Target(
            name="seconds of make repro",
            what="the default pipeline in a new clone after installation, caches empty; smallest and largest beside",
            found=whole,
            at_most=90,
            limited_by="compiling from nothing, traces of steps of 10 ms, and the twins",
        ),
        Target(
            name="make repro over plain training",
            what="the same over as many plain steps of each configuration, a process each, compilation included",
            found=over_plain,
            at_most=1.5,
            limited_by="what a trace adds to steps of 10 ms, and lowering graphs again for deterministic kernels",
        ),
        Target(
            name="seconds that a no-op dvc repro adds",
            what="`dvc repro` when nothing is new, less the probe, which always runs",
            found=exactly(round(added, 3)),
            at_most=1.0,
            limited_by="importing DVC",
        ),
    ]


if __name__ == "__main__":
    typer.run(main)
