"""Time every configuration of params.yaml in turns with its reference, in several rounds.

Within a round the pipeline's own timed phase alternates the two step by step. Rounds show what differs from one start
of the processes to the next: where the allocator put the tensors, what the compiler chose.
"""

import os
import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from results_file import save
from rich.console import Console
from rich.table import Table

from trainparity import params
from trainparity.data import datasets
from trainparity.environment import detect
from trainparity.launch.runs import run_configuration, run_reference
from trainparity.params import Params
from trainparity.placement import Placement, place
from trainparity.records import layout
from trainparity.records.timing import Timing
from trainparity.report.speedup import speedup


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each configuration is timed.")] = 3,
    path: Annotated[Path, typer.Argument(help="The params file.")] = Path("params.yaml"),
) -> None:
    """Time all configurations in rounds and write the figures to benchmarks/results."""
    settings, environment = params.load(path), detect()
    shortest = settings.train.model_copy(update={"max_steps": 1})  # parity is the pipeline's business
    settings = settings.model_copy(update={"train": shortest})
    placements = {name: place(c, settings.accelerator, environment) for name, c in settings.configs.items()}
    real = [name for name, p in placements.items() if isinstance(p, Placement) and not p.emulated]
    os.environ["PYTHONPATH"] = str(Path.cwd())  # where a workload of one's own is imported from
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        datasets.prepare(settings.dataset, Path("data"), Path("downloads"))
        timings = [_round(settings, real) for _ in range(rounds)]
    figures = {name: _figures([each[name] for each in timings if name in each]) for name in real}
    settings_of = {"workload": settings.workload.model_dump(mode="json"), "steps": settings.timing.steps}
    _print(figures)
    print(save("step-time", {"rounds": rounds, **settings_of, "figures": figures}))


def _round(settings: Params, names: list[str]) -> dict[str, Timing]:
    """Run the references and each configuration once."""
    environment, runs, prepared = detect(), Path("runs"), Path("data")
    for name in settings.references:
        run_reference(settings, environment, name, runs=runs, data=prepared)
    for name in names:
        run_configuration(settings, environment, name, runs=runs, data=prepared)
    found = {name: layout.timing(runs, name) for name in names}
    return {name: Timing.read(path) for name, path in found.items() if path.exists()}


def _figures(rounds: list[Timing]) -> dict[str, object]:
    """Return the median step of each round, and the speed-up over all pairs of steps."""
    reference = [value for each in rounds for value in each.reference_ms]
    own = [value for each in rounds for value in each.step_ms]
    ratio = speedup(reference, own)
    return {
        "step_ms_by_round": [round(statistics.median(each.step_ms), 3) for each in rounds],
        "reference_ms_by_round": [round(statistics.median(each.reference_ms), 3) for each in rounds],
        "speedup": {name: round(value, 4) for name, value in ratio._asdict().items()},
        "compile_s_by_round": [each.compile_s for each in rounds],
        "peak_host_mib": max(each.memory.host_mib for each in rounds),
        "peak_device_mib": max(each.memory.device_allocated_mib or 0 for each in rounds),
        "others": [round(each.machine.others, 3) for each in rounds if each.machine],
    }


def _print(figures: dict[str, dict[str, Any]]) -> None:
    table = Table("configuration", "step ms, by round", "speed-up", "95 % interval", box=None)
    for name, found in figures.items():
        gain = found["speedup"]
        table.add_row(
            name, str(found["step_ms_by_round"]), f"{gain['ratio']:.3f}x", f"{gain['low']:.3f} to {gain['high']:.3f}"
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
