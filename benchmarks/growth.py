"""How cost grows: with parameters, batch, accumulation, ranks, tensors, steps and runs; what theory says beside it.

The exponent is the slope of a line through the logarithms of the two last points: 1 is proportional, 0 constant.
"""

import math
import os
import socket
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import torch.distributed as dist
import typer
from pairs import Target, exactly, seconds
from results_file import save
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import trainparity
from trainparity.parity.compare import compare_in_detail
from trainparity.report import page
from trainparity.report.origin import Origin


class Series(NamedTuple):
    """What was measured over what it grows with."""

    of: str
    over: str
    points: dict[int, float]
    theory: float
    """The exponent that is expected where the size is large."""
    why: str

    @property
    def last(self) -> tuple[float, float]:
        """How far the last point lies from the one before it: size over size, cost over cost."""
        (x, y), (more, grown) = list(self.points.items())[-2:]
        return more / x, grown / y

    @property
    def exponent(self) -> float:
        """The slope between the last two points."""
        larger, dearer = self.last
        return math.log(dearer) / math.log(larger)


def main(
    largest: Annotated[int, typer.Option(help="Parameters of the largest model; from 100,000 on.")] = 10**8,
    ranks: Annotated[int, typer.Option(help="The most ranks; powers of two up to it.")] = 8,
    runs: Annotated[int, typer.Option(min=4, help="The most runs on one page.")] = 60,
) -> None:
    """Measure, print and write benchmarks/results/growth-<device>.json."""
    torch.set_num_threads(1)
    found = [*_parameters(largest), _tensors(), _batch(), _accumulation(), *_ranks(ranks), _page(runs)]
    table = Table("cost", "over", "measured", "exponent", "theory", "because", box=None)
    for each in found:
        points = ", ".join(f"{x:,}: {y:.4g}" for x, y in each.points.items())
        table.add_row(each.of, each.over, points, f"{each.exponent:.2f}", f"{each.theory:g}", each.why)
    Console(width=200).print(table)
    print(
        save("growth", {"series": [s._asdict() | {"exponent": round(s.exponent, 3)} for s in found]}, _targets(found))
    )


def _mlp(parameters: int, layers: int = 4) -> nn.Module:
    width = round(math.sqrt(parameters / layers))
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width, bias=False), nn.ReLU())])


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int = 8, parts: int = 1) -> None:
    inputs = torch.ones(batch, next(model.parameters()).shape[1])
    optimizer.zero_grad()
    for part in inputs.chunk(parts):
        (model(part).square().sum() / batch).backward()
    optimizer.step()


def _timed(model: nn.Module, batch: int = 8, parts: int = 1, repeats: int = 7) -> float:
    """Return the milliseconds of a step: the least of some, as other load only adds."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return 1e3 * min(seconds(partial(_step, model, optimizer, batch, parts)) for _ in range(repeats))


def _traced(model: nn.Module, folder: Path, steps: int = 2) -> tuple[int, float]:
    """Return the bytes of a trace and the milliseconds of a traced step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with trainparity.record(model, optimizer, folder, first=steps):
        times = [seconds(partial(_step, model, optimizer)) for _ in range(steps)]
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), 1e3 * statistics.median(times)


def _parameters(largest: int) -> list[Series]:
    sizes = [10**power for power in range(5, round(math.log10(largest)) + 1)]
    plain, traced, size = {}, {}, {}
    for number in sizes:
        model = _mlp(number)
        plain[number] = _timed(model)
        with tempfile.TemporaryDirectory() as folder:
            size[number], traced[number] = _traced(model, Path(folder))
    over = "parameters"
    return [
        Series("ms of a step", over, plain, 1, "every weight is read, and updated, once"),
        Series("ms of a traced step", over, traced, 1, "every weight and gradient is projected once"),
        Series("bytes of a trace", over, dict(size), 0, "a tensor's sketch has 64 numbers, however large"),
    ]


def _tensors() -> Series:
    points = {}
    for layers in (4, 16, 64):
        with tempfile.TemporaryDirectory() as folder:
            points[layers] = float(_traced(_mlp(layers * 1024, layers), Path(folder))[0])
    return Series("bytes of a trace", "tensors", points, 1, "a sketch for each tensor and step")


def _batch() -> Series:
    model = _mlp(10**6)
    points = {batch: _timed(model, batch) for batch in (16, 64, 256, 1024)}
    return Series("ms of a step", "batch", points, 1, "every sample is multiplied with every weight")


def _accumulation() -> Series:
    model = _mlp(10**6)
    points = {parts: _timed(model, 1024, parts) for parts in (1, 2, 4, 8)}
    return Series("ms of a step", "accumulation", points, 0, "1024 samples, the same products in parts")


def _ranks(most: int) -> list[Series]:
    messages, payload, times = {}, {}, {}
    context = torch.multiprocessing.get_context("spawn")
    os.environ.update(OMP_NUM_THREADS="1", GOMP_SPINCOUNT="1000")
    for world in [2**power for power in range(most.bit_length())]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        with context.Pool(world) as pool:
            counted = pool.map(partial(_counted, world), range(world), chunksize=1)[0]
        messages[world], payload[world], times[world] = counted
    ring = "parameters x 4 bytes, of which a ring sends 2 (W - 1) / W from each rank"
    return [
        Series("all-reduces of a step", "ranks", messages, 0, "buckets of 25 MiB and a first of 1 MiB, on every rank"),
        Series("bytes that a rank reduces", "ranks", payload, 0, ring),
        Series("ms of a step, all ranks on this machine", "ranks", times, 1, "they share its cores, from these on"),
    ]


def _counted(world: int, rank: int) -> tuple[int, int, float]:
    """Return the all-reduces of a step, their bytes, and the step's milliseconds."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    sent: list[int] = []

    def counting(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sent.append(bucket.buffer().nbytes)
        return allreduce_hook(group, bucket)

    try:
        model = DistributedDataParallel(_mlp(4 * 10**6))
        model.register_comm_hook(dist.group.WORLD, counting)
        milliseconds, steps = _timed(model), 7
        return len(sent) // steps, sum(sent) // steps, milliseconds
    finally:
        dist.destroy_process_group()


def _page(most: int) -> Series:
    """Write the page of a comparison of so many runs with one; each is the same pair under another name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run in ("a", "a/twins/1", "b"):
            _traced(_mlp(10**4), folder / run, steps=20)
        verdict, details = compare_in_detail(folder / "a", folder / "b")
    origin = Origin("python benchmarks/growth.py", None)
    points = {}
    for count in sorted({1, most // 4, most}):
        titles = [f"run {number}" for number in range(count)]
        html = page.compared(dict.fromkeys(titles, verdict), dict.fromkeys(titles, details), origin, command="compare")
        points[count] = float(len(html.encode()))
    return Series("bytes of a report", "runs", points, 1, "a strip of cells for each pair, up to a fixed number in all")


def _targets(found: list[Series]) -> list[Target]:
    """Return how far each cost grows beyond theory from the last size but one: what grows faster is found so."""
    return [
        Target(
            name=f"{each.of} by {each.over}",
            what=f"growth over the last {larger:g} x, over theory's {larger**each.theory:g} x, as {each.why}",
            found=exactly(dearer / larger**each.theory),
            at_most=round(larger**_SLACK, 2),
            limited_by="what the sizes here leave in caches: the largest have none of their weights there",
        )
        for each in found
        for larger, dearer in [each.last]
        if each.over != "ranks" or each.theory == 0  # they share the cores: that time is the machine's
    ]


_SLACK = 0.2
"""How far an exponent may lie above theory's."""


if __name__ == "__main__":
    typer.run(main)
