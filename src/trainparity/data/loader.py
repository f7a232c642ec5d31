"""Micro-batches in the order that the plan asks for, sliced in memory or loaded by worker processes."""

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from trainparity.data.prepared import Batch, Prepared
from trainparity.data.workers import WorkersFailed, load_in_workers, pins
from trainparity.params import Loader


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
    for samples in plan[done:]:
        batch = dataset.batch(samples)
        yield {name: tensor.pin_memory() for name, tensor in batch.items()} if pins(loader) else batch
