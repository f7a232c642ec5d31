"""bf16 autocast with channels_last beside fp32 on this processor: ResNet-18 by our own loop, images of two sizes."""

import statistics
from pathlib import Path
from typing import Annotated

import torch
import typer
from our_loop import images, our_loop, stepping
from pairs import Target, figures, ratio, take_turns
from results_file import save

from trainparity import workloads
from trainparity.params import Configuration

INSTRUCTIONS = ("avx512f", "avx512_bf16", "amx_bf16")
CONFIGURATIONS = {
    "fp32": Configuration(),
    "fp32, channels_last": Configuration(memory_format="channels_last"),
    "bf16": Configuration(precision="bf16"),
    "bf16, channels_last": Configuration(precision="bf16", memory_format="channels_last"),
}


SIZES = (32, 64)
"""Pixels on a side of an image."""


def main(
    steps: Annotated[int, typer.Option(min=6)] = 12,
    width: Annotated[int, typer.Option(help="Channels of the first stage; 64 is ResNet-18's.")] = 64,
    batch: Annotated[int, typer.Option(min=2, help="Images of a step.")] = 32,
) -> None:
    """Measure, print and write benchmarks/results/precision-<device>.json."""
    torch.set_num_threads(1)
    found = {size: _measured(size, batch, width, steps) for size in SIZES}
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split() if Path("/proc/cpuinfo").exists() else []
    here = {name: name in flags for name in INSTRUCTIONS}
    result = {"steps": steps, "width": width, "batch": batch, "instructions": here, "speedup_over_fp32": found}
    print(result)
    targets = [_target(size, batch, each["bf16, channels_last"], here) for size, each in found.items()]
    print(save("precision", result, targets))


def _measured(size: int, batch: int, width: int, steps: int) -> dict[str, dict[str, float]]:
    workload, tensors = workloads.load("resnet", {"width": width}), images(4 * batch, (3, size, size))
    times = take_turns([stepping(our_loop(workload, tensors, batch, c)) for c in CONFIGURATIONS.values()], steps)
    return {
        name: {"step_ms": round(1e3 * statistics.median(own), 3), **figures(times[0], own)}
        for name, own in zip(CONFIGURATIONS, times, strict=True)
    }


def _target(size: int, batch: int, found: dict[str, float], here: dict[str, bool]) -> Target:
    has = ", ".join(name for name, there in here.items() if there) or "none of AVX512, AVX512-bf16 and AMX"
    return Target(
        name=f"bf16 with channels_last, {size} px",
        what=f"a step in fp32 over one in bf16 with channels_last, ResNet-18, {batch} such images, one thread",
        found=ratio(found),
        at_least=3.0,
        limited_by=f"the processor, which has {has}: AVX512-bf16 doubles products, AMX gives more to large images",
    )


if __name__ == "__main__":
    typer.run(main)
