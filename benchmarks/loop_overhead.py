"""What a training loop adds to a step: ours, Lightning Fabric's and Accelerate's beside a bare one on the same batches.

A loop and a bare one take turns, step by step, so that drift of the machine falls on both, and who is first changes,
so that none finds more in the caches. A ratio is one of neighbouring steps: their median, with the sign test's 95 %
interval. The bare loop beside a second bare one says what such a measurement can tell apart.
"""

import statistics
from collections.abc import Callable
from itertools import count
from typing import Annotated

import torch
import typer
from our_loop import our_loop
from pairs import Lane, Target, exactly, figures, take_turns
from results_file import save
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from trainparity.params import Optimizer
from trainparity.report.speedup import Ratio
from trainparity.training.loop import Trainer
from trainparity.workloads import Batch, Section, Workload

SAMPLES, FEATURES, CLASSES = 4096, 64, 10
SIZES = {"tiny": (32, 1, 32), "small": (256, 2, 64), "medium": (512, 3, 128), "large": (768, 4, 192)}
"""Width, hidden layers and global batch of each model: steps of about 0.2, 1, 6 and 26 ms on one thread."""

WARM_UP = 10


class Mlp(Workload):
    """A perceptron; what it computes is in every loop the same."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__(Section())
        self.width, self.layers = width, layers

    def build_model(self, sample: Batch) -> nn.Module:
        """Build it on the CPU."""
        hidden = [m for _ in range(self.layers) for m in (nn.Linear(self.width, self.width), nn.ReLU())]
        return nn.Sequential(nn.Linear(FEATURES, self.width), nn.ReLU(), *hidden, nn.Linear(self.width, CLASSES))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed cross-entropy."""
        return nn.functional.cross_entropy(model(batch["inputs"]), batch["labels"], reduction="sum")


class Task:
    """What all loops do: a model, its data, and the order of the samples."""

    def __init__(self, size: tuple[int, int, int], steps: int) -> None:
        width, layers, self.batch_size = size
        self.workload = Mlp(width, layers)
        generator = torch.Generator().manual_seed(0)
        self.tensors = {
            "inputs": torch.randn(SAMPLES, FEATURES, generator=generator),
            "labels": torch.randint(CLASSES, (SAMPLES,), generator=generator),
        }
        sampler = self.trainer().sampler
        self.order = [sampler.global_batch(step) for step in range(WARM_UP + steps)]

    def model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Return the model and its optimizer as a loop of one's own would make them."""
        torch.manual_seed(0)
        model = self.workload.build_model({})
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def trainer(self) -> Trainer:
        """Return our loop over the same."""
        optimizer = Optimizer(name="sgd", lr=0.01, momentum=0.9)
        return our_loop(self.workload, self.tensors, self.batch_size, optimizer=optimizer)


def main(
    steps: Annotated[int, typer.Option(min=20, help="Steps of each loop that are timed.")] = 300,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Measure, print and write benchmarks/results/loop-overhead-<device>.json."""
    torch.set_num_threads(threads)
    table = Table("model", "loop", "step ms", "ratio to the bare loop", "added us", box=None)
    found = {}
    for name, size in SIZES.items():
        found[name] = {loop: _measured(LOOPS[loop], Task(size, steps)) for loop in LOOPS}
        for loop, its in found[name].items():
            ratio = f"{its['ratio']:.3f} ({its['low']:.3f} to {its['high']:.3f})"
            table.add_row(name, loop, f"{its['step_ms']:.3f}", ratio, f"{its['added_us']:.0f}")
    Console().print(table)
    print(save("loop-overhead", {"steps": steps, "sizes": SIZES, "figures": found}, _targets(found)))


def _measured(loop: Callable[[Task], Lane], task: Task) -> dict[str, float]:
    """Return a loop's step, its ratio to the bare loop's, and what it adds to a step."""
    bare, own = take_turns((_bare(task), loop(task)), len(task.order) - WARM_UP, WARM_UP)
    added = statistics.median(ours - theirs for ours, theirs in zip(own, bare, strict=True))
    return {"step_ms": round(1e3 * statistics.median(own), 4), **figures(own, bare), "added_us": round(1e6 * added, 1)}


def _targets(found: dict[str, dict[str, dict[str, float]]]) -> list[Target]:
    limits = "seeding torch's generator in each step, as the model may draw, and checking what the workload returns"
    sizes = [
        Target(
            name=f"loop, {size} model",
            what="a step of our loop over the bare loop's on the same batches, of 5 ms at least",
            found=Ratio(*(found[size]["ours"][key] for key in ("ratio", "low", "high"))),
            at_most=1.02,
            limited_by=limits,
        )
        for size in ("medium", "large")
        if found[size]["bare"]["step_ms"] >= 5
    ]
    added = found["tiny"]["ours"]["added_us"]
    what = "microseconds that our loop adds to the shortest step; Fabric's and Accelerate's are in the file"
    return [
        *sizes,
        Target(name="loop, microseconds added", what=what, found=exactly(added), at_most=20, limited_by=limits),
    ]


def _ours(task: Task) -> Lane:
    trainer, numbers = task.trainer(), count()
    batches = trainer.batches(0, len(task.order), trainer.configuration.loader)
    return lambda: trainer.step(next(numbers), next(batches))


def _bare(task: Task) -> Lane:
    return _stepping(task, *task.model(), Tensor.backward)


def _fabric(task: Task) -> Lane:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    return _stepping(task, *fabric.setup(*task.model()), fabric.backward)


def _accelerate(task: Task) -> Lane:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    return _stepping(task, *accelerator.prepare(*task.model()), accelerator.backward)


def _stepping(
    task: Task, model: nn.Module, optimizer: torch.optim.Optimizer, backward: Callable[[Tensor], object]
) -> Lane:
    batches = iter([{name: tensor[samples] for name, tensor in task.tensors.items()} for samples in task.order])

    def step() -> None:
        batch = next(batches)
        optimizer.zero_grad()
        backward(task.workload.loss(model, batch) / len(batch["labels"]))
        optimizer.step()

    return step


LOOPS: dict[str, Callable[[Task], Lane]] = {
    "bare": _bare,
    "ours": _ours,
    "fabric": _fabric,
    "accelerate": _accelerate,
}


if __name__ == "__main__":
    typer.run(main)
