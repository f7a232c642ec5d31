"""Where a training step's time goes: FLOP/s against the measured peak, the dearest operations, hidden waits and copies.

A step that waits for the GPU (`.item()`, a copy to the host) leaves it without work; every such place is listed with
its line. The data are random numbers of the dataset's shape, so no download is needed.
"""

import statistics
import time
import warnings
from collections import Counter
from typing import Annotated, Any, NamedTuple

import torch
import typer
from our_loop import images, our_loop
from results_file import save
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from trainparity import workloads
from trainparity.measure.clocks import synchronise
from trainparity.measure.flops import count_flops, peak_flops
from trainparity.params import Configuration, Optimizer, Precision
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.training.micro_batches import MicroBatch


class Case(NamedTuple):
    """What is trained."""

    workload: str
    options: dict[str, Any]
    image: tuple[int, int, int]
    """Channels, height, width."""
    batch: int
    """Samples of a step."""


CASES = {
    "resnet-18": Case("resnet", {"depth": 18}, (3, 32, 32), 128),
    "resnet-50": Case("resnet", {"depth": 50}, (3, 32, 32), 128),
    "resnet-101": Case("resnet", {"depth": 101}, (3, 32, 32), 128),
    "ddpm": Case("ddpm", {"scale": "article"}, (1, 28, 28), 128),
}
"""The articles' own."""
SMOKE = {"ddpm": Case("ddpm", {"scale": "tiny"}, (1, 8, 8), 8)}
STEPS = 30


def main(
    smoke: Annotated[bool, typer.Option(help="Small models, few steps; nothing is kept.")] = False,
    precisions: Annotated[str, typer.Option(help="Of fp32, tf32, bf16; separated by commas.")] = "",
) -> None:
    """Measure, print and write benchmarks/results/where-time-goes-<device>.json."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = precisions.split(",") if precisions else ["tf32", "bf16"] if device.type == "cuda" else ["fp32"]
    table = Table(
        "workload", "precision", "step ms", "of the peak", "waits a step", "copies a step", "dearest", box=None
    )
    figures: dict[str, Any] = {}
    for name, case in (SMOKE if smoke else CASES).items():
        for precision in chosen:
            found = figures[f"{name} {precision}"] = _measured(case, precision, device, 3 if smoke else STEPS)
            waits, copies = found["waits"], found["copies_per_step"]
            fraction = f"{100 * found['peak_fraction']:.0f} %"
            cells = (f"{found['step_ms']:.2f}", fraction, f"{sum(waits.values()):.2g}", str(copies))
            table.add_row(name, precision, *cells, next(iter(found["dearest"])))
    Console().print(table)
    if not smoke:
        print(save("where-time-goes", {"steps": STEPS, "figures": figures}))


def _measured(case: Case, precision: Precision, device: torch.device, steps: int) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    trainer = _trainer(case, precision, device)
    batches = list(trainer.batches(0, 4, trainer.configuration.loader))
    for number in range(3):
        trainer.step(number, batches[number])
    synchronise(device)
    times = [_timed(trainer, batches[number % 4], device) for number in range(steps)]
    flops = _flops(trainer, batches[0])
    peak = peak_flops(device, precision)
    median = statistics.median(times)
    return {
        "step_ms": 1e3 * median,
        "flops_per_s": flops / median,
        "peak_flops_per_s": peak,
        "peak_fraction": flops / median / peak,
        "waits": _waits(trainer, batches),
        **_profiled(trainer, batches),
    }


def _trainer(case: Case, precision: Precision, device: torch.device) -> Trainer:
    workload, options, shape, batch = case
    tensors, optimizer = images(4 * batch, shape), Optimizer(name="adam", lr=1e-4)
    loaded, configuration = workloads.load(workload, options), Configuration(precision=precision)
    return our_loop(loaded, tensors, batch, configuration, Execution(device=device), optimizer)


def _timed(trainer: Trainer, batch: list[MicroBatch], device: torch.device) -> float:
    started = time.perf_counter()
    trainer.step(0, batch)
    synchronise(device)
    return time.perf_counter() - started


def _flops(trainer: Trainer, batch: list[MicroBatch]) -> float:
    """Return the operations of one step, counted while it is made."""
    return count_flops(lambda: trainer.step(0, batch)) or float("nan")


def _waits(trainer: Trainer, batches: list[list[MicroBatch]]) -> dict[str, float]:
    """Return how often a step waits for the GPU, by the line of Python that does."""
    if trainer.execution.device.type != "cuda":
        return {}
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number, batch in enumerate(batches):
                trainer.step(number, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = Counter(f"{w.filename.rpartition('site-packages/')[2]}:{w.lineno}" for w in caught)
    return {place: count / len(batches) for place, count in places.most_common()}


def _profiled(trainer: Trainer, batches: list[list[MicroBatch]]) -> dict[str, Any]:
    """Return the operations that take most of a step's time, in ms a step, and its copies between host and device."""
    on_gpu = trainer.execution.device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as profiler:
        for number, batch in enumerate(batches):
            trainer.step(number, batch)
        synchronise(trainer.execution.device)
    events = profiler.key_averages()
    spent = {e.key: (e.self_device_time_total if on_gpu else e.self_cpu_time_total) / 1e3 for e in events}
    dearest = sorted(spent, key=lambda key: -spent[key])[:5]
    copies = sum(event.count for event in events if event.key.startswith("Memcpy"))
    return {
        "dearest": {key: round(spent[key] / len(batches), 3) for key in dearest},
        "copies_per_step": copies / len(batches),
    }


if __name__ == "__main__":
    typer.run(main)
