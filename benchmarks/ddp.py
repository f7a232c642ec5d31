"""What DDP costs on two ranks of one thread each: synchronising once a step, its options, optimizers, efficiency.

Both ranks make the steps of all lanes in the same turns; rank 0's times count. The model that is bound by
communication is an embedding: all of its gradient is reduced, of which a micro-batch makes a few rows.
"""

import os
import socket
import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from our_loop import images, our_loop, stepping
from pairs import Lane, Target, figures, ratio, take_turns
from results_file import save
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainparity import workloads
from trainparity.params import Configuration
from trainparity.strategies import Execution
from trainparity.strategies.ddp import Ddp

RANKS, MICRO_BATCHES = 2, 4
OPTIONS: dict[str, dict[str, Any]] = {
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "both": {"gradient_as_bucket_view": True, "static_graph": True},
}
OPTIMIZERS: dict[str, dict[str, Any]] = {"foreach": {"foreach": True}, "fused": {"fused": True}}


def main(
    steps: Annotated[int, typer.Option(min=6)] = 30,
    width: Annotated[int, typer.Option(help="Of the embedding and of wide layers.")] = 2048,
    channels: Annotated[int, typer.Option(help="Of ResNet-18's first stage, for the efficiency; 64 is its own.")] = 32,
    batch: Annotated[
        int, typer.Option(min=4, help="The global batch that the efficiency is of; also of half as many.")
    ] = 128,
) -> None:
    """Measure, print and write benchmarks/results/ddp-<device>.json."""
    batches = (batch // 2, batch)
    with socket.create_server(("127.0.0.1", 0)) as free:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    os.environ.update(OMP_NUM_THREADS="1", GOMP_SPINCOUNT="1000")
    with torch.multiprocessing.get_context("spawn").Pool(RANKS) as pool:
        found: dict[str, Any] = pool.map(partial(_rank, steps, width, channels, batches), range(RANKS), chunksize=1)[0]
    print(found)
    print(save("ddp", {"steps": steps, "width": width, "channels": channels, **found}, _targets(found, batch)))


def _rank(steps: int, width: int, channels: int, batches: Sequence[int], rank: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    try:
        found = {"accumulation": _accumulation(rank, steps, width), "options": _options(steps, width)}
        found["optimizers"] = _optimizers(steps, width)
        return found | {"efficiency": {batch: _efficiency(rank, steps, channels, batch) for batch in batches}}
    finally:
        dist.destroy_process_group()


def _wide(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())])


def _accumulation(rank: int, steps: int, width: int) -> dict[str, float]:
    """Return the time of steps that synchronise in every micro-batch over those of our strategy."""
    strategy = Ddp(Execution(device=torch.device("cpu"), rank=rank, world_size=RANKS))
    torch.manual_seed(0)
    inputs = torch.randint(width, (MICRO_BATCHES, 4))

    def lane(*, always: bool) -> Lane:
        embedding = nn.Sequential(nn.Embedding(width, width), nn.Linear(width, 16))
        model = strategy.setup(embedding, workloads.load("toy-linear", {}))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            for number, part in enumerate(inputs, 1):
                last = number == MICRO_BATCHES
                with nullcontext() if always or last else strategy.accumulating(model):
                    (model(part).square().mean() / MICRO_BATCHES).backward()
            optimizer.step()

        return step

    once, always = take_turns([lane(always=False), lane(always=True)], steps)
    return {"ms": round(1e3 * statistics.median(once), 3), **figures(always, once)}


def _options(steps: int, width: int) -> dict[str, dict[str, float]]:
    """Return what each of DDP's options gains: a step without over one with it."""
    inputs = torch.randn(4, width)
    lanes = [_sgd(DistributedDataParallel(_wide(width), **options), inputs) for options in ({}, *OPTIONS.values())]
    plain, *others = take_turns(lanes, steps)
    return {name: figures(plain, times) for name, times in zip(OPTIONS, others, strict=True)}


def _sgd(model: nn.Module, inputs: Tensor) -> Lane:
    return _stepping(model, torch.optim.SGD(model.parameters(), lr=0.01), inputs)


def _stepping(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor) -> Lane:
    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def _optimizers(steps: int, width: int) -> dict[str, dict[str, float]]:
    """Return what each form of Adam gains, without communication: a whole step of the default over one with it."""
    inputs, models = torch.randn(4, width), [_wide(width) for _ in range(1 + len(OPTIMIZERS))]
    kinds = [torch.optim.Adam(m.parameters(), **o) for m, o in zip(models, ({}, *OPTIMIZERS.values()), strict=True)]
    plain, *others = take_turns([_stepping(m, o, inputs) for m, o in zip(models, kinds, strict=True)], steps)
    return {name: figures(plain, times) for name, times in zip(OPTIMIZERS, others, strict=True)}


def _efficiency(rank: int, steps: int, channels: int, batch: int) -> dict[str, Any]:
    """Return half of how many times faster two ranks make a global batch than one; the other rank waits meanwhile.

    `apart`: of two that send each other nothing, which is what the machine's two cores have to give.
    """
    workload, tensors = workloads.load("resnet", {"width": channels}), images(4 * batch, (3, 32, 32))
    connected = Execution(device=torch.device("cpu"), rank=rank, world_size=RANKS)
    single = stepping(our_loop(workload, tensors, batch))
    both = stepping(our_loop(workload, tensors, batch, Configuration(strategy="ddp", world_size=RANKS), connected))
    half = stepping(our_loop(workload, tensors, batch // RANKS))

    def alone() -> None:
        if rank == 0:
            single()
        dist.barrier()

    def apart() -> None:
        half()
        dist.barrier()

    one, two, unconnected = take_turns([alone, both, apart], steps)
    return {
        "step_ms": round(1e3 * statistics.median(two), 1),
        "of_two": _halved(figures(one, two)),
        "apart": _halved(figures(one, unconnected)),
    }


def _halved(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value / RANKS, 4) for name, value in found.items()}


def _targets(found: dict[str, Any], batch: int) -> list[Target]:
    apart = found["efficiency"][batch]["apart"]["ratio"]
    return [
        Target(
            name="DDP, one synchronisation a step",
            what=f"{MICRO_BATCHES} micro-batches that all synchronise over those of which the last does, 2 ranks, gloo",
            found=ratio(found["accumulation"]),
            at_least=1.8,
            limited_by="what a micro-batch computes itself, and the optimizer",
        ),
        Target(
            name="DDP, efficiency of 2 ranks",
            what=f"a step of ResNet-18, {batch} images, on one rank over twice that on two, one thread each",
            found=ratio(found["efficiency"][batch]["of_two"]),
            at_least=0.9,
            limited_by=f"what the cores share: two ranks that send nothing reach {apart:.2f}",
        ),
    ]


if __name__ == "__main__":
    typer.run(main)
