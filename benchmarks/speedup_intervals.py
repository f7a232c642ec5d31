"""Whether the interval of a speed-up holds what is true: a configuration that is the reference, under changing load.

A process that computes as hard as it can comes and goes at random. The configuration's speed-up is 1; its 95 % interval
should hold that in 19 of 20 runs.
"""

import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pairs import Target, exactly
from results_file import save
from rich.console import Console
from rich.table import Table

from trainparity import params, workloads
from trainparity.data import datasets
from trainparity.data.store import load as load_data
from trainparity.environment import detect
from trainparity.params import Configuration
from trainparity.placement import Placement, place
from trainparity.records.timing import Timing
from trainparity.report.speedup import speedup
from trainparity.report.words import disturbance
from trainparity.strategies import Execution
from trainparity.training import timing_phase
from trainparity.training.loop import Trainer
from trainparity.training.spec import RunSpec, TimedBeside

BURN = "import torch; torch.set_num_threads({threads}); a = torch.randn(512, 512)\nwhile True: a @ a"


def main(runs: Annotated[int, typer.Option(min=1)] = 20) -> None:
    """Measure, print and write benchmarks/results/speedup-intervals-<device>.json."""
    with tempfile.TemporaryDirectory() as folder:
        spec = _spec(Path(folder))
        quiet = [_measured(spec) for _ in range(runs)]
        with _load_that_comes_and_goes(threads=1):
            loaded = [_measured(spec) for _ in range(runs)]
    table = Table("run", "quiet", "under load", "what else ran", box=None)
    for number, (one, other) in enumerate(zip(quiet, loaded, strict=True), 1):
        table.add_row(str(number), _text(one), _text(other), disturbance(other.machine))
    Console().print(table)
    figures = {name: _figures(timings) for name, timings in (("quiet", quiet), ("load", loaded))}
    for name, found in figures.items():
        print(f"{name}: {found['held']} of {runs} intervals hold 1; half of them are within {found['half_width']:.3f}")
    target = Target(
        name="intervals that hold the truth",
        what="share of runs of the reference beside itself, under a load that comes and goes, whose interval holds 1",
        found=exactly(figures["load"]["held"] / runs),
        at_least=0.9,
        limited_by="a load that changes within the two steps of a pair",
    )
    print(save("speedup-intervals", {"runs": runs, "steps": len(quiet[0].step_ms), "figures": figures}, [target]))


def _spec(folder: Path) -> RunSpec:
    """Return the default pipeline's `cpu`, which is its reference again."""
    settings = params.load(Path("params.yaml"))
    datasets.prepare(settings.dataset, folder / "data", folder / "downloads")
    configuration, environment = settings.configs["cpu"], detect()
    where = place(configuration, "cpu", environment)
    assert isinstance(where, Placement)
    return RunSpec(
        run="cpu",
        workload=settings.workload,
        dataset=settings.dataset,
        train=settings.train,
        parity=settings.parity,
        timing=settings.timing,
        beside=TimedBeside(configuration=Configuration(), placement=where),
        configuration=configuration,
        placement=where,
        fingerprint=environment.fingerprint,
        code="",
        device_name=environment.processor,
        data=folder / "data",
        work=folder / "work",
    )


def _measured(spec: RunSpec) -> Timing:
    workload = workloads.load(spec.workload.name, spec.workload.options)
    execution = Execution(device=torch.device("cpu"))
    trainer = Trainer(workload, load_data(spec.data), spec.train, spec.configuration, execution)
    assert spec.timing
    return timing_phase.measure(spec, spec.timing, trainer, lambda: None)


def _text(timing: Timing) -> str:
    ratio, low, high = speedup(timing.reference_ms, timing.step_ms)
    return f"{ratio:.3f} ({low:.3f} to {high:.3f}) {'' if low <= 1 <= high else 'misses 1'}"


def _figures(timings: list[Timing]) -> dict[str, Any]:
    ratios = [speedup(timing.reference_ms, timing.step_ms) for timing in timings]
    widths = sorted((ratio.high - ratio.low) / 2 for ratio in ratios)
    return {
        "held": sum(ratio.low <= 1 <= ratio.high for ratio in ratios),
        "half_width": round(widths[len(widths) // 2], 4),
        "ratios": [[round(value, 4) for value in ratio] for ratio in ratios],
        "others": [round(timing.machine.others, 3) for timing in timings if timing.machine],
    }


@contextmanager
def _load_that_comes_and_goes(threads: int) -> Iterator[None]:
    """Start and stop a busy process at random, each for up to a second, until the context ends."""
    ended, draw = threading.Event(), random.Random(0)

    def come_and_go() -> None:
        with subprocess.Popen([sys.executable, "-c", BURN.format(threads=threads)]) as burner:
            burning = True
            while not ended.wait(draw.uniform(0.1, 1.0)):
                burner.send_signal(signal.SIGSTOP if burning else signal.SIGCONT)
                burning = not burning
            burner.kill()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    typer.run(main)
