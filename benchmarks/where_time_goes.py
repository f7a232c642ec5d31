"""Where a training step's time goes: FLOP/s against the measured peak, the dearest operations, hidden waits and copies.

A step that waits for the GPU (`.item()`, a copy to the host) leaves it without work; every such place is listed with
its line. The data are random numbers of the dataset's shape, so no download is needed. The models are the articles'
own; what an epoch of theirs would take is the step's time times its steps.
"""

import math
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import torch
import typer
from our_loop import images, our_loop
from pairs import Target, exactly
from results_file import measured_before, save
from rich.console import Console
from rich.table import Table
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from trainparity import workloads
from trainparity.measure.clocks import synchronise
from trainparity.measure.flops import count_flops, peak_flops
from trainparity.measure.memory import peaks, reset_peaks
from trainparity.params import Configuration, Optimizer
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.training.micro_batches import MicroBatch
from trainparity.training.precision import tensor_cores

Settings = Mapping[str, Any]
"""Of a configuration."""
FASTEST: Settings = {"compile": "reduce-overhead", "memory_format": "channels_last"}


class Case(NamedTuple):
    """What is trained, and how."""

    workload: str
    options: dict[str, Any]
    image: tuple[int, int, int]
    """Channels, height, width."""
    batch: int
    """Samples of a step."""
    epoch: int
    """Samples of the article's dataset."""
    ways: Mapping[str, Settings]
    """Configurations by name."""


TF32: dict[str, Settings] = {"tf32": {"precision": "tf32"}}
BF16: dict[str, Settings] = {"bf16": {"precision": "bf16"}}
EAGER = TF32 | BF16
TF32_FASTEST = {"tf32, fastest": {"precision": "tf32", **FASTEST}}
BF16_FASTEST = {"bf16, fastest": {"precision": "bf16", **FASTEST}}
BF16_COMPILED = {"bf16, compiled": {"precision": "bf16", "compile": "default"}}
CIFAR, MNIST = 50_000, 60_000
CASES = {
    "resnet-18": Case("resnet", {"depth": 18}, (3, 32, 32), 128, CIFAR, EAGER | TF32_FASTEST | BF16_FASTEST),
    "resnet-50": Case("resnet", {"depth": 50}, (3, 32, 32), 128, CIFAR, EAGER),
    "resnet-101": Case("resnet", {"depth": 101}, (3, 32, 32), 128, CIFAR, EAGER),
    "ddpm": Case("ddpm", {"scale": "article"}, (1, 28, 28), 128, MNIST, EAGER | BF16_FASTEST),
    "swin-t": Case("classifier", {"model": "swin-t", "scale": "article", "image_size": 224}, (3, 32, 32), 64, CIFAR,
                   BF16 | BF16_COMPILED),
    "swin-b": Case("classifier", {"model": "swin-b", "scale": "article", "image_size": 224}, (3, 32, 32), 64, CIFAR,
                   BF16 | BF16_COMPILED),
}  # fmt: skip
"""The articles' own, at their batch sizes."""
ON_A_CPU = {"fp32": {"precision": "fp32"}}
SMOKE = {"ddpm": Case("ddpm", {"scale": "tiny"}, (1, 8, 8), 8, 80, ON_A_CPU)}
STEPS = 30


def main(
    smoke: Annotated[bool, typer.Option(help="Small models, few steps; nothing is kept.")] = False,
    cases: Annotated[str, typer.Option(help="Of " + ", ".join(CASES) + "; separated by commas.")] = ",".join(CASES),
) -> None:
    """Measure, print and write benchmarks/results/where-time-goes-<device>.json; cases left out keep their figures."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = Table(
        "workload", "configuration", "step ms", "epoch s", "of the peak", "MiB", "first step s", "waits", "copies",
        box=None,
    )  # fmt: skip
    figures = {} if smoke else measured_before("where-time-goes", "figures", "busy_ms")
    for name, case in (SMOKE if smoke else {name: CASES[name] for name in cases.split(",")}).items():
        flops = _flops(_trainer(case, {}, device))
        for way, settings in (case.ways if device.type == "cuda" else ON_A_CPU).items():
            found = figures[f"{name} {way}"] = _measured(case, settings, device, flops, 3 if smoke else STEPS)
            table.add_row(name, way, *_cells(found))
            if not smoke:  # a case that takes too long leaves those before it
                save("where-time-goes", {"steps": STEPS, "figures": figures}, _targets(figures))
            print(f"{name} {way}: {found['step_ms']:.2f} ms", flush=True)
    Console().print(table)


def _cells(found: Mapping[str, Any]) -> list[str]:
    return [
        f"{found['step_ms']:.2f}",
        f"{found['epoch_s']:.2f}",
        f"{100 * found['peak_fraction']:.0f} %",
        f"{found['peak_mib'] or 0:,.0f}",
        f"{found['first_step_s']:.1f}",
        f"{sum(found['waits'].values()):.2g}",
        f"{found['copies_per_step']:.2g}",
    ]


def _measured(case: Case, settings: Settings, device: torch.device, flops: float, steps: int) -> dict[str, Any]:
    torch.compiler.reset()
    trainer = _trainer(case, settings, device)
    with tensor_cores(trainer.precision):
        batches = list(trainer.batches(0, 4, trainer.configuration.loader))
        first_s = _timed(trainer, batches[:1], device)
        for number in range(5):  # CUDA graphs are recorded in the second and third
            trainer.step(number, batches[number % 4])
        reset_peaks(device)
        alone = [_timed(trainer, batches[:1], device) for _ in range(steps)]
        rows = [_timed(trainer, batches * 2, device) for _ in range(math.ceil(steps / 8))]
        median, peak = statistics.median(rows), peak_flops(device, trainer.precision)
        return {
            "step_ms": 1e3 * median,
            "step_alone_ms": 1e3 * statistics.median(alone),
            "epoch_s": median * math.ceil(case.epoch / case.batch),
            "first_step_s": first_s,
            "peak_mib": peaks(device).device_allocated_mib,
            "flops_per_s": flops / median,
            "peak_flops_per_s": peak,
            "peak_fraction": flops / median / peak,
            "waits": _waits(trainer, batches),
            **_profiled(trainer, batches),
        }


def _trainer(case: Case, settings: Settings, device: torch.device) -> Trainer:
    tensors, optimizer = images(4 * case.batch, case.image), Optimizer(name="adam", lr=1e-4)
    loaded, configuration = workloads.load(case.workload, case.options), Configuration(**settings)
    return our_loop(loaded, tensors, case.batch, configuration, Execution(device=device), optimizer)


def _timed(trainer: Trainer, batches: list[list[MicroBatch]], device: torch.device) -> float:
    """Return the seconds of a step; as in training, nobody waits for the GPU between those of a row."""
    started = time.perf_counter()
    for number, batch in enumerate(batches):
        trainer.step(number, batch)
    synchronise(device)
    return (time.perf_counter() - started) / len(batches)


def _flops(trainer: Trainer) -> float:
    """Return the operations of one step, counted while it is made."""
    (batch,) = trainer.batches(0, 1, trainer.configuration.loader)
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
    """Return what takes most of a step's time, in ms a step, and its copies between host and device.

    On a GPU that is its kernels: a range that a library names, such as a compiled pass, is not counted again.
    """
    on_gpu = trainer.execution.device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as profiler:
        for number, batch in enumerate(batches):
            trainer.step(number, batch)
        synchronise(trainer.execution.device)
    events = [event for event in profiler.key_averages() if not (on_gpu and _is_of_the_host(event))]
    spent: Counter[str] = Counter()
    for event in events:
        spent[event.key[:_NAME]] += (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e3
    return {
        "busy_ms": sum(spent.values()) / len(batches),
        "dearest": {name: round(ms / len(batches), 3) for name, ms in spent.most_common(_DEAREST)},
        "copies_per_step": sum(event.count for event in events if event.key.startswith("Memcpy")) / len(batches),
    }


def _is_of_the_host(event: Any) -> bool:
    return event.device_type != DeviceType.CUDA or event.is_user_annotation


_DEAREST = 12
_NAME = 120
"""Characters of an operation's name; kernels have templates as names."""


def _targets(figures: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    """Return the targets of the workloads that were measured, each by its best configuration."""
    found = []
    if ways := [way for way in figures if way.startswith("resnet-18")]:
        best = max(ways, key=lambda way: figures[way]["peak_fraction"])
        found.append(
            Target(
                name="ResNet-18, of the measured peak",
                what=f"FLOP/s of a step over those of the best matrix product, {best}, 128 images of 32 x 32",
                found=exactly(figures[best]["peak_fraction"]),
                at_least=0.25,
                limited_by="its kernels, without a gap between two: convolutions of 64 channels, and what moves bytes",
            )
        )
    if ways := [way for way in figures if way.startswith("ddpm")]:
        best = min(ways, key=lambda way: figures[way]["step_ms"])
        found.append(
            Target(
                name="DDPM, seconds of an epoch",
                what=f"{best}: a step of 128 images of 28 x 28, times the steps of MNIST; the article has 22 s",
                found=exactly(figures[best]["epoch_s"]),
                at_most=3.4,
                limited_by="its kernels, without a gap between two: dilated convolutions, group norms, copies",
            )
        )
    return found


if __name__ == "__main__":
    typer.run(main)
