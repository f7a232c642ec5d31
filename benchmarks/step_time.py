"""Time every configuration of params.yaml in rounds, each beside the reference: `make bench`.

The pipeline times a configuration once; between two such times the machine may have slowed down. Here every round
runs the reference and then each configuration, and the speed-up is taken within a round, so that slow drift cancels.
"""

import json
import os
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from trainparity import params
from trainparity.data import datasets
from trainparity.environment import Placement, detect, place
from trainparity.launch.runs import run_configuration, run_reference
from trainparity.params import Params, reference_name
from trainparity.records import layout
from trainparity.records.base import write_text
from trainparity.records.timing import Timing

RESULTS = Path(__file__).parent / "results"


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
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "rounds": rounds,
        "environment": environment.model_dump(mode="json") | {"fingerprint": environment.fingerprint},
        "workload": settings.workload.model_dump(mode="json"),
        "dataset": settings.dataset.model_dump(mode="json"),
        "global_batch_size": settings.train.global_batch_size,
        "timed_steps": settings.timing.steps,
        "configurations": {name: _figures(timings, name, settings) for name in [reference_name("fp32"), *real]},
    }
    device = next((a.name for a in environment.accelerators), environment.processor)
    name = "-".join(device.lower().replace("(r)", "").split())
    write_text(RESULTS / f"step-time-{name}.json", json.dumps(result, indent=1) + "\n")
    _print(result["configurations"])


def _round(settings: Params, names: list[str]) -> dict[str, Timing]:
    """Run the references and each configuration once."""
    environment, runs, prepared = detect(), Path("runs"), Path("data")
    for name in settings.references:
        run_reference(settings, environment, name, runs=runs, data=prepared)
    for name in names:
        run_configuration(settings, environment, name, runs=runs, data=prepared)
    found = (layout.timing(runs, name) for name in [*_references(settings), *names])
    return {path.parents[1].name: Timing.read(path) for path in found if path.exists()}


def _references(settings: Params) -> list[str]:
    return [reference_name(name) for name in settings.references]


def _figures(timings: list[dict[str, Timing]], name: str, settings: Params) -> dict[str, object]:
    """Return the median step of each round, and the speed-up over the reference of the same round."""
    rounds = [each for each in timings if name in each]
    reference = reference_name(settings.reference_of(name)) if name in settings.configs else name
    medians = [statistics.median(each[name].step_ms) for each in rounds]
    ratios = [statistics.median(e[reference].step_ms) / m for e, m in zip(rounds, medians, strict=True)]
    return {
        "step_ms_by_round": [round(value, 3) for value in medians],
        "speedup": {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)},
        "compile_s_by_round": [each[name].compile_s for each in rounds],
        "peak_host_mib": max(each[name].memory.host_mib for each in rounds),
        "peak_device_mib": max((each[name].memory.device_allocated_mib or 0 for each in rounds), default=0),
        "device": rounds[0][name].device_name,
    }


def _print(configurations: dict[str, dict[str, object]]) -> None:
    table = Table("configuration", "step ms, by round", "speed-up: median", "lowest", "highest", box=None)
    for name, figures in configurations.items():
        speedup = figures["speedup"]
        assert isinstance(speedup, dict)
        cells = [f"{speedup[key]:.2f}x" for key in ("median", "low", "high")]
        table.add_row(name, str(figures["step_ms_by_round"]), *cells)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
