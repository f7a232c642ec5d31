"""What starts cost: commands that need no tensors beside `import torch`, and README's check of six candidates."""

import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pairs import Target, exactly, figures, take_turns
from results_file import save

from trainparity.report.speedup import Ratio

ROOT = Path(__file__).resolve().parents[1]
CLI = ["-m", "trainparity.cli"]
COMMANDS = {
    "trainparity.record": ["-c", "import trainparity; trainparity.record"],
    "compare --help": [*CLI, "compare", "--help"],
    "show --help": [*CLI, "show", "--help"],
    "validate": [*CLI, "validate", str(ROOT / "params.yaml")],
}
CANDIDATES = ["ddp:2", "gradaccum:4", "fsdp-offload", "compiled", "dp", "amp-bf16"]


def main(
    turns: Annotated[int, typer.Option(min=6)] = 8,
    check: Annotated[bool, typer.Option(help="Time README's check of six candidates too.")] = True,
) -> None:
    """Measure, print and write benchmarks/results/startup-<device>.json."""
    lanes = [partial(_run, command) for command in (["-c", "import torch"], *COMMANDS.values())]
    torch_alone, *others = take_turns(lanes, turns, warm_up=1)
    found = {
        name: {"s": round(statistics.median(times), 3), "imports_torch": _imports_torch(COMMANDS[name])}
        | figures(times, torch_alone)
        for name, times in zip(COMMANDS, others, strict=True)
    }  # fmt: skip
    alone = round(statistics.median(torch_alone), 3)
    targets = [_target(name, its, alone) for name, its in found.items()]
    result = {"turns": turns, "import_torch_s": alone, "over_import_torch": found}
    if check:
        took = _check()
        result["check_s"] = round(took, 1)
        targets.append(
            Target(
                name="seconds of a check of six",
                what="`trainparity check` of README's six candidates, the starter's workload, in a new folder",
                found=exactly(round(took, 1)),
                at_most=60,
                limited_by="the processor time in which processes start and models are compiled",
            )
        )
    print(result)
    print(save("startup", result, targets))


def _run(command: list[str]) -> None:
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, check=True)


def _imports_torch(command: list[str]) -> bool:
    done = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True)
    return any(line.split("|")[-1].strip() == "torch" for line in done.stderr.splitlines())


def _check() -> float:
    """Return the seconds of the check."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, *CLI, "init"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        started = time.perf_counter()
        command = [sys.executable, *CLI, "check", "workload:Classifier", "--against", *CANDIDATES]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started


def _target(name: str, found: dict[str, float], torch_alone: float) -> Target:
    if name == "trainparity.record":
        return Target(
            name=f"seconds that {name} adds",
            what=f"`import trainparity; {name}` less `import torch`, both in a new process",
            found=exactly(round(found["s"] - torch_alone, 3)),
            at_most=0.2,
            limited_by="pydantic and safetensors",
        )
    return Target(
        name=f"start of {name}",
        what=f"`{name}` over `import torch`, both in a new process",
        found=Ratio(found["ratio"], found["low"], found["high"]),
        at_most=0.5,
        limited_by="it imports torch" if found["imports_torch"] else "Python",
    )


if __name__ == "__main__":
    typer.run(main)
