"""Micro-batches in the order that the plan asks for, sliced in memory or loaded by worker processes."""

import shutil
from collections.abc import Iterator, Sequence

from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainparity.data.errors import DataError
from trainparity.data.prepared import Prepared
from trainparity.params import Loader

Batch = dict[str, Tensor]
_DEADLINE_S = 120.0


class _Batches(Dataset[Batch]):
    """The plan as a dataset: item i is the i-th micro-batch, so a worker loads a whole one at a time."""

    def __init__(self, dataset: Prepared, plan: Sequence[Tensor]) -> None:
        self._dataset, self._plan = dataset, plan

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, index: int) -> Batch:
        return self._dataset.batch(self._plan[index])


def micro_batches(dataset: Prepared, plan: Sequence[Tensor], loader: Loader) -> Iterator[Batch]:
    """Yield the batch of each int64 index tensor of `plan`, in order; the same whatever loads it.

    Raises:
        DataError: a worker process died or did not answer in two minutes.
    """
    if loader.workers == 0:
        for indices in plan:
            batch = dataset.batch(indices)
            yield ({name: tensor.pin_memory() for name, tensor in batch.items()} if loader.pin_memory else batch)
        return
    try:
        yield from DataLoader(
            _Batches(dataset, plan),
            batch_size=None,
            num_workers=loader.workers,
            multiprocessing_context=loader.start_method,
            prefetch_factor=loader.prefetch_factor,
            pin_memory=loader.pin_memory,
            timeout=_DEADLINE_S,
        )
    except RuntimeError as error:
        if "DataLoader worker" not in str(error) and "DataLoader timed out" not in str(error):
            raise  # an exception inside a worker, passed on by it
        raise DataError(
            f"loading with num_workers {loader.workers} failed: {error}. Shared memory has {_shared_memory()}; "
            f"{loader.workers} x {loader.prefetch_factor} batches wait in it. Give it more (docker: shm_size), or set "
            f"loader.workers or loader.prefetch_factor lower; workers 0 needs none."
        ) from error


def _shared_memory() -> str:
    try:
        return f"{shutil.disk_usage('/dev/shm').free >> 20} MiB free"
    except OSError:
        return "an unknown size"
