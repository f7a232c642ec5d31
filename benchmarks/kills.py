"""Kill runs at random moments and look at what is left: `python benchmarks/kills.py`, counts in benchmarks/results.

Each trial copies a project with a trained reference, starts one configuration's stage and sends a signal to one of its
processes at a random moment. Then three questions: is any process left after ten seconds, is every output whole or
absent, and does the next run end with the bits of an uninterrupted one?
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer
import yaml
from rich.console import Console

from trainparity.environment import detect
from trainparity.records import layout
from trainparity.records.base import write_text
from trainparity.records.run import Status

RESULT = Path(__file__).parent / "results" / "kills.json"
RUNS = Path("runs")
STAGE = [sys.executable, "-m", "trainparity.stages"]
CONFIGS = {
    "single": {},
    "gradaccum": {"accumulation_steps": 2},
    "ddp": {"strategy": "ddp", "world_size": 2},
    "fsdp-offload": {"strategy": "fsdp", "world_size": 2, "offload": "both"},
    "compiled": {"compile": "default"},
    "workers": {"loader": {"workers": 2}},
}
SETTINGS = {
    "accelerator": "cpu",
    "workload": {"name": "toy-linear"},
    "dataset": {"name": "fake", "shape": [20], "size": 2048},
    "train": {
        "epochs": 4,
        "max_steps": 120,
        "global_batch_size": 32,
        "checkpoint_every": 10,
        "optimizer": {"name": "adam", "lr": 0.001},
    },
    "parity": {"twins": 1, "window": 20},
    "timing": {"warmup_steps": 1, "steps": 5},
    "configs": CONFIGS,
}
TARGETS = ("stage", "rank", "child of a rank")
SIGNALS = (signal.SIGKILL, signal.SIGTERM)


def main(
    moments: Annotated[int, typer.Option(min=1, help="Random moments for each configuration.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the moments, targets and signals.")] = 0,
    output: Annotated[Path, typer.Option(help="Where the counts are written.", dir_okay=False)] = RESULT,
) -> None:
    """Kill each configuration at random moments; exit code 1 if anything was left, half written or different."""
    console, chance = Console(highlight=False), random.Random(seed)
    output = output.absolute()
    counts: dict[str, Counter[str]] = {name: Counter() for name in CONFIGS}
    with tempfile.TemporaryDirectory(prefix="trainparity-kills-") as folder:
        home = Path(folder) / "home"
        expected, seconds = prepare(home)
        for number in range(moments):
            for name in CONFIGS:
                here = Path(folder) / f"{name}-{number}"
                shutil.copytree(home, here)
                moment, target, what = chance.uniform(0, seconds[name]), chance.choice(TARGETS), chance.choice(SIGNALS)
                faults = trial(here, name, moment, target, what, expected[name])
                counts[name].update(["trials", what.name, target, *faults])
                console.print(
                    f"{name}: {what.name} to the {target} after {moment:.1f} s: {', '.join(faults) or 'fine'}"
                )
                shutil.rmtree(here)
    environment = detect()
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": environment.processor,
        "cores": environment.cores,
        "torch": environment.torch,
        "seed": seed,
        "configurations": {name: dict(sorted(found.items())) for name, found in counts.items()},
    }
    write_text(output, json.dumps(result, indent=1) + "\n")
    raise typer.Exit(1 if any(fault in found for found in counts.values() for fault in FAULTS) else 0)


LEFT, HALF, OTHER, FAILED = "processes left", "half written", "other bits", "the next run failed"
FAULTS = (LEFT, HALF, OTHER, FAILED)


def prepare(home: Path) -> tuple[dict[str, dict[str, bytes]], dict[str, float]]:
    """Make the project; return the state files of uninterrupted runs, and how long each took."""
    home.mkdir()
    (home / "params.yaml").write_text(yaml.safe_dump(SETTINGS))
    for stage in ("validate", "probe", "prepare", "reference"):
        subprocess.run([*STAGE, stage], cwd=home, check=True)
    expected, seconds = {}, {}
    for name in CONFIGS:
        started = time.monotonic()
        subprocess.run([*STAGE, "train", name], cwd=home, check=True)
        seconds[name] = time.monotonic() - started
        expected[name] = files(home / layout.state(RUNS, name))
        shutil.rmtree(home / layout.state(RUNS, name))
        shutil.rmtree(home / layout.report(RUNS, name))
    return expected, seconds


def trial(
    here: Path, name: str, moment: float, target: str, number: signal.Signals, expected: dict[str, bytes]
) -> list[str]:
    """Run a stage, send a signal to one of its processes, run it to its end; return what went wrong."""
    command, faults = [*STAGE, "train", name], []
    stage = subprocess.Popen(command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment)
    process = find(psutil.Process(stage.pid), target)
    if process.is_running():
        process.send_signal(number)
    try:
        stage.wait(120)
    except subprocess.TimeoutExpired:
        faults.append(LEFT)
        stage.kill()
    time.sleep(1)
    deadline = time.monotonic() + 9
    while (left := alive(here)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        faults.append(LEFT)
        psutil.wait_procs([p for p in left if not p.kill()], 5)
    if not whole(here, name):
        faults.append(HALF)
    done = subprocess.run(command, cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    state = here / layout.status(RUNS, name)
    if done.returncode or not state.exists() or Status.read(state).status != "trained":
        faults.append(FAILED)
    elif files(here / layout.state(RUNS, name)) != expected:
        faults.append(OTHER)
    return faults


def find(stage: psutil.Process, target: str) -> psutil.Process:
    """Return the process that is to get the signal: the stage where there is no such process at this moment."""
    try:
        ranks = stage.children()
        below = [child for rank in ranks for child in rank.children(recursive=True)]
    except psutil.Error:
        return stage
    chosen = {"rank": ranks, "child of a rank": below}.get(target, [])
    return chosen[-1] if chosen else stage


def alive(here: Path) -> list[psutil.Process]:
    """Return the processes that work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(here):
                found.append(process)
        except psutil.Error:
            continue
    return found


def whole(here: Path, name: str) -> bool:
    """Tell whether the outputs of a run are whole or absent."""
    state, report = here / layout.state(RUNS, name), here / layout.report(RUNS, name)
    unfinished = list((here / RUNS).rglob(".*.tmp"))
    if not state.exists():
        return not unfinished
    return not unfinished and report.exists() and (state / "status.json").exists()


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


if __name__ == "__main__":
    typer.run(main)
