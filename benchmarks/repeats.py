"""Train the same again, alone, under load, on one core and beside itself: `python benchmarks/repeats.py`.

Each time a new project is made and its pipeline's stages run in it. The states must have the same bits, or the
environment another fingerprint, which says that they need not. Beside it: two projects at once, and all runs of one
project asked for twice at once.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from kill_trial import CONFIGS, RUNS, SETTINGS, STAGE, files
from results_file import save
from rich.console import Console

from trainparity.environment import Environment, usable_cores
from trainparity.records import layout

NAMES = ("single", "gradaccum", "ddp", "fsdp-offload", "compiled", "workers")
BUSY = "while True: pass"


class Project:
    """A new folder in which the stages run."""

    def __init__(self, folder: Path, cores: set[int] | None = None) -> None:
        self.folder, self._cores = folder, cores
        folder.mkdir()
        settings = SETTINGS | {"configs": {name: CONFIGS[name] for name in NAMES}}
        (folder / "params.yaml").write_text(yaml.safe_dump(settings))

    def run(self, *stage: str) -> None:
        """Run a stage, on some cores alone if they are given."""

        def pin() -> None:
            os.sched_setaffinity(0, self._cores or os.sched_getaffinity(0))

        done = subprocess.run(
            [*STAGE, *stage], cwd=self.folder, capture_output=True, text=True, check=False, preexec_fn=pin
        )
        assert done.returncode == 0, f"{stage}: {done.stdout}\n{done.stderr}"

    def train(self) -> "Project":
        """Run everything; return this project."""
        for stage in ("validate", "probe", "prepare", "reference"):
            self.run(stage)
        for name in NAMES:
            self.run("train", name)
        return self

    @property
    def fingerprint(self) -> str:
        """The environment's."""
        return Environment.read(self.folder / layout.environment(RUNS)).fingerprint

    def states(self) -> dict[str, dict[str, bytes]]:
        """Return each run's files."""
        return {name: files(self.folder / layout.state(RUNS, name)) for name in NAMES}


@contextmanager
def load() -> Iterator[None]:
    """Keep every core busy with as many processes again."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(usable_cores())]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main(
    runs: Annotated[int, typer.Option(min=1, help="Of each kind: alone, under load, on one core.")] = 4,
) -> None:
    """Exit code 1 if two states differ under one fingerprint."""
    console = Console(highlight=False)
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="repeats-") as text:
        home = Path(text)
        first = Project(home / "first").train()
        expected, fingerprint = first.states(), first.fingerprint

        def look(kind: str, project: Project) -> None:
            found = counts.setdefault(kind, Counter())
            if project.fingerprint != fingerprint:
                found["another fingerprint"] += 1
            for name, state in project.states().items():
                same = "equal" if state == expected[name] else "different"
                found[f"{same} runs"] += 1
            console.print(f"{kind}: {dict(found)}")
            save("repeats", {"configurations": NAMES, "found": {k: dict(v) for k, v in counts.items()}})

        def again(kind: str, number: int, cores: set[int] | None = None) -> None:
            look(kind, Project(home / f"{kind}-{number}", cores).train())

        twins = [Project(home / f"clone-{number}") for number in range(2)]
        at_once([twin.train for twin in twins])
        for twin in twins:
            look("two projects at once", twin)
        twice = Project(home / "twice")
        for stage in ("validate", "probe", "prepare", "reference"):
            twice.run(stage)
        at_once([lambda: [twice.run("train", name) for name in NAMES]] * 2)
        look("one project twice at once", twice)
        for number in range(runs):
            again("alone", number)
            with load():
                again("under load", number)
            again("on one core", number, {min(os.sched_getaffinity(0))})
    wrong = any(found["different runs"] and not found["another fingerprint"] for found in counts.values())
    raise typer.Exit(1 if wrong else 0)


def at_once(tasks: list[Callable[[], Any]]) -> None:
    """Do them beside each other, and raise what one raises."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        for task in [pool.submit(task) for task in tasks]:
            task.result()


if __name__ == "__main__":
    typer.run(main)
