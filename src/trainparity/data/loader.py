"""Micro-batches in the order that the plan asks for, sliced in memory or loaded by worker processes."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from trainparity.data.prepared import Batch, Prepared
from trainparity.data.workers import WorkersFailed, load_in_workers, pins
from trainparity.params import Loader

_TOGETHER_BYTES = 1 << 20
"""Small batches are gathered together up to so much: gathering has a fixed cost, which they share then."""
_ALIGNMENT = 64
"""Bytes: torch's allocator aligns to so many on the CPU, so a batch cut out of others lies as one of its own would."""


def micro_batches(
    dataset: Prepared, plan: Sequence[Tensor], loader: Loader, failed: Callable[[WorkersFailed], None]
) -> Iterator[Batch]:
    """Yield the batch of each int64 index tensor of `plan`, in order; the same bits whatever loads it.

    Where worker processes fail, `failed` is told once and the batches that are left are sliced in memory. What the
    dataset raises is raised, in whichever process.
    """
    done = 0
    if loader.workers:
        try:
            for batch in load_in_workers(dataset, plan, loader):
                done += 1
                yield batch
        except WorkersFailed as error:
            failed(error)
    while done < len(plan):
        batches = _gathered(dataset, plan, done, pin=pins(loader))
        done += len(batches)
        if dataset.reads_ahead:
            for samples in plan[done : done + len(batches)]:
                dataset.expect(samples)
        yield from batches


def _gathered(dataset: Prepared, plan: Sequence[Tensor], first: int, *, pin: bool) -> list[Batch]:
    """Return the batch of entry `first` of the plan and, if they are small, of those that follow."""
    row_bytes = [tensor[:1].nbytes for tensor in dataset.tensors.values()] + [plan[first].itemsize]
    aligned_rows = max(_ALIGNMENT // math.gcd(_ALIGNMENT, size) for size in row_bytes if size)
    most_rows = _TOGETHER_BYTES // sum(row_bytes)
    pieces: list[Tensor] = []
    bounds: list[tuple[int, int]] = []
    rows = 0
    for number in range(first, len(plan)):
        samples = plan[number]
        count = samples.numel()  # a seventh of the time of `len`
        gap = -count % aligned_rows
        if pieces and rows + count + gap > most_rows:
            break
        bounds.append((rows, rows + count))
        pieces.append(samples)
        if gap:
            pieces.append(samples[:1].expand(gap))
        rows += count + gap
    together = dataset.batch(torch.cat(pieces) if len(bounds) > 1 else plan[first])
    if pin:
        together = {name: tensor.pin_memory() for name, tensor in together.items()}
    return [{name: tensor[start:stop] for name, tensor in together.items()} for start, stop in bounds]
