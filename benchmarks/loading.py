"""What loading costs: ours in memory beside torchvision's dataset with a DataLoader, ours from a file beside memmap's.

A file is evicted from the page cache before each turn, so that it is read as one larger than memory is. The pixels are
random, so no download is needed.
"""

import os
import statistics
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from our_loop import images, our_loop
from pairs import Target, figures, in_turns, seconds
from results_file import save
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets import CIFAR10

from trainparity import workloads
from trainparity.data.loader import micro_batches
from trainparity.data.store import load, write
from trainparity.data.streamed import rows
from trainparity.params import Loader
from trainparity.report.speedup import Ratio
from trainparity.training.lane import Lane
from trainparity.training.loop import Trainer
from trainparity.workloads.images import centred

TURN = 40
"""Batches, each dropped before the next, as training does: memory that is kept is fresh memory for the next."""
UNTIMED = 40
"""Batches before each turn: the caches hold the other's data, and its workers load 4 batches ahead on our cores."""
SHAPE = (3, 192, 192)
"""Of a sample in the file: 108 KiB."""
STREAM_BATCH = 64


def main(
    turns: Annotated[int, typer.Option(min=6, help="Of 40 batches each; of an epoch of the file half as many.")] = 12,
    batches: Annotated[int, typer.Option(min=2, help="In the file's epoch.")] = 48,
    steps: Annotated[int, typer.Option(min=6, help="Training steps, for the share that waits.")] = 20,
    workers: Annotated[int, typer.Option(min=0, help="Of a DataLoader; without any it is measured too.")] = 2,
    batch: Annotated[int, typer.Option(min=2, help="Images of 32 x 32.")] = 128,
) -> None:
    """Measure, print and write benchmarks/results/loading-<device>.json."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    trainer = our_loop(workloads.load("resnet", {"width": 16}), images(40 * batch, (3, 32, 32)), batch)
    memory, waiting = _in_memory(trainer, turns, sorted({0, workers})), _waiting(trainer, steps)
    with tempfile.TemporaryDirectory() as folder:
        file = _from_file(Path(folder) / "data", max(6, turns // 2), batches, sorted({0, workers}))
    result = {"turns": turns, "in_memory": memory, "waiting": waiting, "from_file": file}
    print(result)
    print(save("loading", result, _targets(memory, waiting, file)))


def _in_memory(trainer: Trainer, turns: int, counts: Sequence[int]) -> dict[str, Any]:
    """Return each DataLoader's time over ours, for batches cropped, mirrored and normalised alike."""
    ours = (centred(parts[0].batch["images"]) for parts in trainer.batches(0, 10**6, Loader()))
    theirs = [_torchvision(trainer, workers) for workers in counts]
    own, *others = in_turns([partial(_turn, batches) for batches in (ours, *theirs)], turns, warm_up=2)
    found = {f"DataLoader, {w} workers": figures(times, own) for w, times in zip(counts, others, strict=True)}
    return {"ours_ms_a_batch": round(1e3 / TURN * statistics.median(own), 3), "over_ours": found}


def _turn(batches: Iterator[Tensor]) -> float:
    _drop(batches, UNTIMED)
    return seconds(lambda: _drop(batches, TURN))


def _drop(batches: Iterator[Tensor], count: int) -> None:
    deque(islice(batches, count), maxlen=0)


def _torchvision(trainer: Trainer, workers: int) -> Iterator[Tensor]:
    """Yield batches for ever, as an article's script loads them."""
    tensors, batch = trainer.dataset.tensors, trainer.train.global_batch_size
    data = CIFAR10.__new__(CIFAR10)  # its `__init__` looks for the files
    data.data = tensors["images"].permute(0, 2, 3, 1).contiguous().numpy()
    data.targets = tensors["labels"].tolist()
    steps = [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data.transform = transforms.Compose([*steps, transforms.Normalize([0.5] * 3, [0.5] * 3)])
    data.target_transform = None
    keep = {"persistent_workers": True} if workers else {}
    loader: Iterable[Any] = DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, **keep)
    while True:
        yield from (images for images, _ in loader)


def _waiting(trainer: Trainer, steps: int) -> dict[str, float]:
    """Return the share of a step in which it waits for its batch, the augmentation included."""
    lane = Lane(trainer, Loader(), steps + 3, num_threads=1)
    lane.train(steps + 3, progress=lambda: None)
    return figures(lane.waits[3:], lane.times[3:])


def _from_file(folder: Path, turns: int, batches: int, counts: Sequence[int]) -> dict[str, Any]:
    """Return the time of an epoch with a model that computes meanwhile, of the best DataLoader over ours."""
    write(folder, "random", _pixels(batches * STREAM_BATCH), source="random", real=False)
    order = list(torch.randperm(batches * STREAM_BATCH, generator=torch.Generator().manual_seed(0)).split(STREAM_BATCH))
    [(offset, _)] = rows(folder / "data.safetensors", batches * STREAM_BATCH)

    def ours(workers: int) -> Iterator[Tensor]:
        plan = micro_batches(load(folder, stream=True), order, Loader(workers=workers, prefetch_factor=4), print)
        yield from (batch["images"] for batch in plan)

    def theirs(workers: int) -> Iterator[Tensor]:
        images = _Rows(folder / "data.safetensors", offset, batches * STREAM_BATCH)
        ahead = {"prefetch_factor": 4} if workers else {}
        yield from DataLoader(images, batch_sampler=[o.tolist() for o in order], num_workers=workers, **ahead)

    kinds = {f"{kind.__name__}, {workers} workers": (kind, workers) for kind in (ours, theirs) for workers in counts}
    lanes = [lambda kind=kind, w=w: _epoch(folder, kind(w)) for kind, w in kinds.values()]
    times = dict(zip(kinds, in_turns(lanes, turns, warm_up=1), strict=True))
    best = {kind: min((n for n in times if n.startswith(kind)), key=lambda n: statistics.median(times[n]))
            for kind in ("ours", "theirs")}  # fmt: skip
    epochs = {name: round(1e3 * statistics.median(found) / (batches - 1), 3) for name, found in times.items()}
    return {"ms_a_batch": epochs, "best": best, **figures(times[best["theirs"]], times[best["ours"]])}


def _pixels(samples: int) -> dict[str, Tensor]:
    return {"images": torch.randint(256, (samples, *SHAPE), dtype=torch.uint8)}


class _Rows(Dataset[Tensor]):
    """The samples of a file through `np.memmap`."""

    def __init__(self, path: Path, offset: int, samples: int) -> None:
        self._rows = np.memmap(path, np.uint8, "r", offset, (samples, *SHAPE))

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self._rows[index].copy())


def _epoch(folder: Path, batches: Iterator[Tensor]) -> float:
    """Return the seconds of an epoch after its first batch, for which workers start."""
    torch.manual_seed(0)
    model = nn.Conv2d(3, 8, 7, stride=8)
    file = os.open(folder / "data.safetensors", os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    next(batches)
    started = time.perf_counter()
    for batch in batches:
        model(batch / 127.5 - 1).square().mean().backward()
    return time.perf_counter() - started


def _targets(memory: dict[str, Any], waiting: dict[str, float], file: dict[str, Any]) -> list[Target]:
    best = min(memory["over_ours"].values(), key=lambda found: found["ratio"])
    return [
        Target(
            name="loading in memory",
            what="a batch of torchvision's CIFAR10 with its best DataLoader over ours, cropped and mirrored by both",
            found=Ratio(best["ratio"], best["low"], best["high"]),
            at_least=10,
            limited_by="copying, cropping and normalising a batch, each once",
        ),
        Target(
            name="share of a step that waits",
            what="waiting for the batch over the whole step, ResNet-18 of width 16, 128 images of 32 x 32, augmented",
            found=Ratio(waiting["ratio"], waiting["low"], waiting["high"]),
            at_most=0.02,
            limited_by="the augmentation, which is drawn between two steps",
        ),
        Target(
            name="loading from a file",
            what="an epoch over a file that is not in memory, the best DataLoader over np.memmap over our best",
            found=Ratio(file["ratio"], file["low"], file["high"]),
            at_least=1.0,
            limited_by="the disk and copying the samples, which is the same for both",
        ),
    ]


if __name__ == "__main__":
    typer.run(main)
