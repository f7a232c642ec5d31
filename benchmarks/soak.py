"""Run a small pipeline in a loop with faults injected, and sample what could grow: `python benchmarks/soak.py`.

Each round trains everything anew from one of two seeds, with a fault or without, then without: its states must have the
bits of the first round of that seed. After each round nothing may live, and nothing temporary may be left. This process
itself judges the runs by the library each time, so that its memory and descriptors show what the library keeps.
"""

import gc
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import psutil
import typer
import yaml
from results_file import save
from rich.console import Console

import trainparity
from trainparity.records import layout
from trainparity.records.run import Status

CLI = [sys.executable, "-m", "trainparity.cli"]
RUNS = Path("runs")
CONFIGS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "world_size": 2},
    "gradaccum": {"accumulation_steps": 2},
    "workers": {"loader": {"workers": 2}},
}
SHARED = Path("/dev/shm")


class Round:
    """One run of the pipeline, whose processes are sampled while it lasts."""

    def __init__(self, folder: Path, temporary: Path) -> None:
        environment = os.environ | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "DVC_NO_ANALYTICS": "1"}
        self._process = psutil.Popen(
            [*CLI, "repro"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._temporary = temporary
        self.peak_mib, self.peak_descriptors, self.peak_processes = 0.0, 0, 0

    def tree(self) -> list[psutil.Process]:
        """Return the processes of the pipeline that live."""
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def to_its_end(self, fault: Callable[[], None] | None = None, after_s: float = 0.0) -> int:
        """Wait for it, bring about a fault meanwhile, and return its exit code."""
        started, memory, descriptors = time.monotonic(), 0, 0
        while self._process.poll() is None:
            if fault and time.monotonic() - started > after_s:
                fault()
                fault = None
            memory = descriptors = 0
            tree = self.tree()
            for process in tree:
                try:
                    memory += process.memory_info().rss
                    descriptors += process.num_fds()
                except psutil.Error:  # it has just ended
                    continue
            self.peak_mib = max(self.peak_mib, memory / 2**20)
            self.peak_descriptors = max(self.peak_descriptors, descriptors)
            self.peak_processes = max(self.peak_processes, len(tree))
            time.sleep(0.2)
        return int(self._process.returncode)


class Soak:
    """A project, the faults that it goes through, and what was seen."""

    def __init__(self, folder: Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self._chance, self._say = chance, say
        self._project, self._temporary = folder / "project", folder / "tmp"
        self._temporary.mkdir()
        self._expected: dict[int, dict[str, bytes]] = {}
        subprocess.run([*CLI, "init", str(self._project)], check=True, stdout=subprocess.DEVNULL)
        self.samples: list[dict[str, float]] = []
        self.rounds: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def round(self, number: int) -> None:
        """Go through one fault and come back."""
        kinds = ["none", "SIGKILL", "SIGTERM", "full disk", "not finite"]
        kind, seed = kinds[number % len(kinds)] if number > 1 else "none", number % 2
        self.rounds[kind] += 1
        self._fresh(seed)
        if kind != "none":
            self._with_fault(kind, seed)
            self._fresh(seed)  # a run that failed is a result, which stays; its checkpoints stay too
        pipeline = Round(self._project, self._temporary)
        code = pipeline.to_its_end()
        self._expect(code == 0, f"the pipeline ended with {code} after: {kind}")
        if code == 0:
            states = self._states()
            self._expect(states == self._expected.setdefault(seed, states), f"other bits after: {kind}")
        self._judge()
        self._look(pipeline)

    def _fresh(self, seed: int) -> None:
        """Have everything trained again."""
        self._settings(seed, rate=1e-3)
        (self._project / "dvc.lock").unlink(missing_ok=True)
        shutil.rmtree(self._project / ".dvc" / "cache", ignore_errors=True)

    def _with_fault(self, kind: str, seed: int) -> None:
        after_s = self._chance.uniform(0, 20)
        if kind == "not finite":
            self._settings(seed, rate=1e30)
            code = Round(self._project, self._temporary).to_its_end()
            self._expect(code == 0, f"the pipeline ended with {code} where weights are not finite")
        elif kind == "full disk":
            with _small(self._project / ".trainparity" / "work") as mounted:
                code = Round(self._project, self._temporary).to_its_end() if mounted else 0
        else:
            pipeline = Round(self._project, self._temporary)

            def kill() -> None:
                if tree := pipeline.tree():
                    self._chance.choice(tree).send_signal(signal.Signals[kind])

            code = pipeline.to_its_end(kill, after_s)
        self.codes[f"{kind}: {code}"] += 1
        self._ended(kind)

    def _ended(self, kind: str) -> None:
        """See that within ten seconds no process works in the project."""
        deadline = time.monotonic() + 10
        while (left := _working_in(self._project)) and time.monotonic() < deadline:
            time.sleep(0.2)
        self._expect(not left, f"processes left after: {kind}")
        psutil.wait_procs([process for process in left if not process.kill()], 5)

    def _judge(self) -> None:
        """Judge the runs in this process, as a program that lives long does."""
        reference = self._project / RUNS / "reference" / "state" / "fp32"
        for name in CONFIGS:
            verdict = trainparity.compare(reference, self._project / layout.state(RUNS, name))
            self._expect(verdict.exit_code == 0, f"{name} is {verdict.verdict}: {verdict.reason}")

    def _look(self, pipeline: Round) -> None:
        self._ended("a round")
        gc.collect()
        own = psutil.Process()
        locks = len(list(self._project.rglob("*.lock")))
        left = [path.name for path in self._temporary.iterdir() if not path.name.startswith("torchinductor_")]
        self._expect(not left, f"temporary files left: {sorted({name[:8] for name in left})}")
        self.samples.append(
            {
                "own_mib": own.memory_info().rss / 2**20,
                "own_descriptors": own.num_fds(),
                "pipeline_peak_mib": pipeline.peak_mib,
                "pipeline_peak_descriptors": pipeline.peak_descriptors,
                "pipeline_peak_processes": pipeline.peak_processes,
                "shared_memory_files": len(list(SHARED.iterdir())) if SHARED.is_dir() else 0,
                "temporary_files": len(left),
                "lock_files": locks,
                "project_mib": sum(p.lstat().st_size for p in self._project.rglob("*") if p.is_file()) / 2**20,
            }
        )
        self._say(f"round {len(self.samples)}: {', '.join(f'{k} {v:.0f}' for k, v in self.samples[-1].items())}")

    def _states(self) -> dict[str, bytes]:
        """Return every file of every state, all of runs that trained."""
        for name in CONFIGS:
            status = Status.read(self._project / layout.status(RUNS, name))
            self._expect(status.status == "trained", f"{name} {status.ending}")
        folder = self._project / RUNS / "state"
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults[fault] += 1
            self._say(f"FAULT: {fault}")

    def _settings(self, seed: int, rate: float) -> None:
        path = self._project / "params.yaml"
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        content["accelerator"], content["configs"] = "cpu", CONFIGS
        content["train"] |= {"seed": seed, "optimizer": {"name": "sgd", "lr": rate}, "max_steps": 20}
        content["parity"]["twins"] = 1
        content["timing"] = {"warmup_steps": 1, "steps": 6}
        path.write_text(yaml.safe_dump(content), encoding="utf-8")


def _working_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        if process.info["cwd"] == str(folder) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@contextmanager
def _small(folder: Path) -> Iterator[bool]:
    """Have a folder lie on a file system with room for 64 KiB; yields whether this user may mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _ends(samples: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return each quantity's median over the first and over the last third of the rounds, and its maximum."""
    third = max(1, len(samples) // 3)
    columns = {key: [sample[key] for sample in samples] for key in samples[0]}
    ends = {key: (median(v[:third]), median(v[-third:]), max(v)) for key, v in columns.items()}
    return {key: [round(value, 1) for value in values] for key, values in ends.items()}


def main(
    minutes: Annotated[float, typer.Option(min=0, help="No round begins after them.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of whom the kills hit, and when.")] = 0,
) -> None:
    """Exit code 1 if a round went wrong; what grew is for a reader to say."""
    console, started = Console(highlight=False), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak, number = Soak(Path(folder).resolve(), random.Random(seed), console.print), 0
        while number < 3 or time.monotonic() - started < 60 * minutes:
            soak.round(number)
            number += 1
    figures = {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "rounds": dict(soak.rounds),
        "exit_codes_with_a_fault": dict(sorted(soak.codes.items())),
        "went_wrong": dict(soak.faults),
        "median_of_first_third_of_last_third_and_maximum": _ends(soak.samples[1:]),  # the first round imports
    }
    console.print(f"{number} rounds in {figures['minutes']} minutes: {save('soak', figures)}")
    raise typer.Exit(1 if soak.faults else 0)


if __name__ == "__main__":
    typer.run(main)
