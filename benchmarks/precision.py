"""bf16 autocast with channels_last beside fp32 on this processor: ResNet-18, 32 x 32, by our own loop."""

import statistics
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pairs import Lane, Target, figures, take_turns
from results_file import save

from trainparity import workloads
from trainparity.data.prepared import Manifest, Prepared
from trainparity.params import Configuration, Optimizer, Train
from trainparity.report.speedup import Ratio
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer

INSTRUCTIONS = ("avx512f", "avx512_bf16", "amx_bf16")
CONFIGURATIONS = {
    "fp32": Configuration(),
    "fp32, channels_last": Configuration(memory_format="channels_last"),
    "bf16": Configuration(precision="bf16"),
    "bf16, channels_last": Configuration(precision="bf16", memory_format="channels_last"),
}


def main(
    steps: Annotated[int, typer.Option(min=6)] = 12,
    width: Annotated[int, typer.Option(help="Channels of the first stage; 64 is ResNet-18's.")] = 32,
    batch: Annotated[int, typer.Option(min=2)] = 32,
) -> None:
    """Measure, print and write benchmarks/results/precision-<device>.json."""
    torch.set_num_threads(1)
    times = take_turns([_lane(c, width, batch) for c in CONFIGURATIONS.values()], steps)
    found = {
        name: {"step_ms": round(1e3 * statistics.median(own), 3), **figures(times[0], own)}
        for name, own in zip(CONFIGURATIONS, times, strict=True)
    }
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split() if Path("/proc/cpuinfo").exists() else []
    here = {name: name in flags for name in INSTRUCTIONS}
    result = {"steps": steps, "width": width, "batch": batch, "instructions": here, "speedup_over_fp32": found}
    print(result)
    print(save("precision", result, [_target(found["bf16, channels_last"], here)]))


def _lane(configuration: Configuration, width: int, batch: int) -> Lane:
    tensors = {
        "images": torch.randint(256, (4 * batch, 3, 32, 32), dtype=torch.uint8),
        "labels": torch.randint(10, (4 * batch,)),
    }
    manifest = Manifest(dataset="random", samples=4 * batch, tensors={}, files={}, source="random", real=False)
    train = Train(seed=0, epochs=1000, global_batch_size=batch, optimizer=Optimizer(name="sgd", lr=0.01))
    workload, execution = workloads.load("resnet", {"width": width}), Execution(device=torch.device("cpu"))
    trainer = Trainer(workload, Prepared(manifest, tensors), train, configuration, execution)
    batches, numbers = trainer.batches(0, trainer.num_steps, configuration.loader), count()
    return lambda: trainer.step(next(numbers), next(batches))


def _target(found: dict[str, Any], here: dict[str, bool]) -> Target:
    has = ", ".join(name for name, there in here.items() if there) or "none of AVX512, AVX512-bf16 and AMX"
    return Target(
        name="bf16 with channels_last",
        what="a step in fp32 over one in bf16 with channels_last, ResNet-18 of half width, one thread",
        found=Ratio(found["ratio"], found["low"], found["high"]),
        at_least=3.0,
        limited_by=f"the processor, which has {has}: AVX512-bf16 doubles products, AMX gives more",
    )


if __name__ == "__main__":
    typer.run(main)
