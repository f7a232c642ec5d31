"""One kill of one run, and a look at what it left: the trials of `kills.py`."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml

from trainparity.records import layout
from trainparity.records.run import Status

RUNS = Path("runs")
STAGE = [sys.executable, "-m", "trainparity.stages"]
CONFIGS: dict[str, dict[str, object]] = {
    "single": {},
    "gradaccum": {"accumulation_steps": 2},
    "ddp": {"strategy": "ddp", "world_size": 2},
    "fsdp-offload": {"strategy": "fsdp", "world_size": 2, "offload": "both"},
    "compiled": {"compile": "default"},
    "workers": {"loader": {"workers": 2}},
    "container": {},
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
}
LEFT, HALF, OTHER, FAILED, LITTER = (
    "processes left after 10 s", "half-written outputs", "next run not bitwise equal", "next run failed",
    "temporary files left after the next run",
)  # fmt: skip
FAULTS = (LEFT, HALF, OTHER, FAILED, LITTER)


class Home:
    """A project with a reference, what uninterrupted runs of its configurations wrote, and how long each took."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        _settings(folder, "host", names)
        stages = {
            name: {
                "cmd": f"{' '.join(STAGE)} train {name}",
                "outs": [str(layout.state(RUNS, name)), str(layout.report(RUNS, name))],
            }
            for name in names
        }
        (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
        _run([sys.executable, "-m", "dvc", "init", "--no-scm", "--quiet"], folder)
        _run([sys.executable, "-m", "dvc", "config", "core.analytics", "false"], folder)
        for stage in ("validate", "probe", "prepare", "reference"):
            _run([*STAGE, stage], folder)
        self.expected: dict[str, dict[str, bytes]] = {}
        self.seconds: dict[str, float] = {}
        for name in names:
            if name == "container":
                _settings(folder, "docker", names)
            started = time.monotonic()
            _run(_dvc(name), folder)
            self.seconds[name] = time.monotonic() - started
            _settings(folder, "host", names)
            self.expected[name] = files(folder / layout.state(RUNS, name))
            shutil.rmtree(folder / layout.state(RUNS, name))
            shutil.rmtree(folder / layout.report(RUNS, name))
        (folder / "dvc.lock").unlink()
        shutil.rmtree(folder / ".dvc" / "cache")

    def copy(self, folder: Path, name: str) -> None:
        """Make a copy in which one configuration has not been trained."""
        shutil.copytree(self.folder, folder)
        if name == "container":
            _settings(folder, "docker", list(self.expected))


def _settings(folder: Path, runtime: str, names: list[str]) -> None:
    content = SETTINGS | {"runtime": runtime, "configs": {name: CONFIGS[name] for name in names}}
    (folder / "params.yaml").write_text(yaml.safe_dump(content))


def _dvc(name: str) -> list[str]:
    return [sys.executable, "-m", "dvc", "repro", "--single-item", name]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"


def trial(
    home: Home, here: Path, name: str, moment: float, target: str, number: signal.Signals, chance: random.Random
) -> list[str]:
    """Run a configuration, send a signal to one of its processes, run it to its end; return what went wrong."""
    home.copy(here, name)
    faults, temporary = [], Path(tempfile.mkdtemp(prefix="kill-"))  # its own, so that what is left in it is the trial's
    cache = home.folder.with_name("inductor")  # shared: what is compiled is the same
    quiet = {
        "cwd": here,
        "env": os.environ | {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    dvc = subprocess.Popen(_dvc(name), **quiet)  # type: ignore[call-overload]
    time.sleep(moment)
    process = _find(psutil.Process(dvc.pid), target, chance)
    if process.is_running():
        process.send_signal(number)
    try:
        dvc.wait(120)
    except subprocess.TimeoutExpired:
        faults.append(LEFT)
        dvc.kill()
    deadline = time.monotonic() + 10
    while (left := _alive(here)) and time.monotonic() < deadline:
        time.sleep(0.2)
    if left:
        faults.append(LEFT)
        psutil.wait_procs([p for p in left if not p.kill()], 5)
    if not _whole(here, name, home.expected[name]):
        faults.append(HALF)
    again = subprocess.run([*STAGE, "train", name], check=False, **quiet)  # type: ignore[call-overload]
    state = here / layout.status(RUNS, name)
    if again.returncode or not state.exists() or Status.read(state).status != "trained":
        faults.append(FAILED)
    elif files(here / layout.state(RUNS, name)) != home.expected[name]:
        faults.append(OTHER)
    if _litter(here, name, temporary):
        faults.append(LITTER)
    shutil.rmtree(here)
    shutil.rmtree(temporary)
    return sorted(set(faults))


def _find(dvc: psutil.Process, target: str, chance: random.Random) -> psutil.Process:
    """Return the process that is to get the signal; where there is none of its kind at this moment, the one above."""
    chosen = [dvc]
    try:
        for depth in ("stage", "rank", "child of a rank"):
            below = [child for process in chosen for child in process.children(recursive=depth == "child of a rank")]
            if target == "dvc" or not below:
                break
            chosen = below
            if target == depth:
                break
    except psutil.Error:
        return dvc
    return chance.choice(chosen)


def _alive(here: Path) -> list[psutil.Process]:
    """Return the processes that work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(here):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _whole(here: Path, name: str, expected: dict[str, bytes]) -> bool:
    """Tell whether the state of a run is whole or absent, or says that the run failed."""
    state = here / layout.state(RUNS, name)
    if not state.exists():
        return True
    if not (state / "status.json").exists():
        return False
    return Status.read(state / "status.json").status == "failed" or files(state) == expected


def _litter(here: Path, name: str, temporary: Path) -> list[Path]:
    """Return what is neither an output nor a lock."""
    work = here / ".trainparity" / "work" / RUNS
    unfinished = [path for path in (here / RUNS).rglob(".*") if path.suffix in (".tmp", ".old")]
    return [*unfinished, *work.glob(f"{name}/**/*"), *temporary.iterdir()]


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
