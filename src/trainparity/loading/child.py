"""One way to load batches, measured in a process of its own: `python -m trainparity.loading.child spec.json`."""

import statistics
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from trainparity import workloads
from trainparity.data.store import load as load_data
from trainparity.data.workers import WorkersFailed
from trainparity.loading.memory import descendants_memory, settled_shared_memory
from trainparity.loading.spec import MeasurementSpec, measurement
from trainparity.ownership import end_with_owner
from trainparity.params import Loader
from trainparity.records.loading import LoaderFigures, LoaderMemory
from trainparity.strategies import Execution
from trainparity.training.lane import Lane
from trainparity.training.loop import Trainer
from trainparity.training.micro_batches import MicroBatch
from trainparity.training.precision import tensor_cores
from trainparity.workloads import Batch

Steps = Iterator[list[MicroBatch]]

_LEAST_COMPARED = 4
_MIB = 1 << 20


def main() -> int:
    """Measure what a spec asks for; return the exit code."""
    end_with_owner()
    spec = MeasurementSpec.read(Path(sys.argv[1]))
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are measured too
    torch.set_num_threads(spec.placement.num_threads)
    try:
        with tensor_cores(spec.configuration.precision):
            found = measurement(spec.mode, spec.configuration.loader, figures=measure(spec))
    except WorkersFailed as error:
        found = measurement(spec.mode, spec.configuration.loader, failed=str(error))
    found.write(spec.result)
    return 0


def measure(spec: MeasurementSpec) -> LoaderFigures:
    """Run the training loop over a loader's batches; then, untimed, look at memory and compare batches.

    Raises:
        WorkersFailed: the worker processes did not bring a batch.
    """
    trainer, loader = _trainer(spec), spec.configuration.loader
    timed_until = spec.warmup + spec.batches
    # So many more that every buffer is still full after the timed steps.
    end = timed_until + max(_LEAST_COMPARED, loader.workers * loader.prefetch_factor + 1)
    lane = Lane(trainer, loader, end, spec.placement.num_threads)
    lane.train(timed_until, progress=lambda: None)
    times, waits = lane.times[spec.warmup :], lane.waits[spec.warmup :]
    epochs = spec.batches / trainer.sampler.steps_per_epoch
    memory = _memory(trainer)
    same = _same(lane.batches, trainer.batches(timed_until, end, Loader()))
    return LoaderFigures(
        batches=spec.batches,
        first_batch_s=lane.waits[0],
        step_ms=statistics.median(times) * 1e3,
        wait_ms=statistics.median(waits) * 1e3,
        epoch_s=sum(times) / epochs,
        epoch_wait_s=sum(waits) / epochs,
        memory=memory,
        compared=len(same),
        identical=sum(same),
    )


class _Training(Trainer):
    """Fails where a trainer would continue without its workers, whose batches are to be measured."""

    def workers_failed(self, error: WorkersFailed) -> None:
        raise error


class _LoadingAlone(_Training):
    """Trains and draws nothing: that happens in this process, however batches are loaded."""

    def step(self, step: int, micro_batches: list[MicroBatch]) -> Tensor:
        return torch.zeros(())

    def with_randomness(self, batch: Batch, step: int) -> Batch:
        return batch


def _trainer(spec: MeasurementSpec) -> Trainer:
    kind = _Training if spec.mode == "training" else _LoadingAlone
    workload = workloads.load(spec.workload.name, spec.workload.options)
    execution = Execution(device=torch.device(spec.placement.device))
    return kind(workload, load_data(spec.data), spec.train, spec.configuration, execution)


def _memory(trainer: Trainer) -> LoaderMemory:
    """Look at the workers when they have loaded all that they may ahead."""
    shared, workers, dataset = settled_shared_memory(), descendants_memory(), trainer.dataset
    batch = dataset.batch(trainer.sampler.global_batch(0))
    # Workers that are not forked get the dataset itself through shared memory.
    shared_tensors = sum(_is_shared(tensor) for tensor in dataset.tensors.values())
    return LoaderMemory(
        workers_rss_mib=workers.rss_mib,
        workers_pss_mib=workers.pss_mib,
        shared_mib=shared.mib if shared else None,
        batch_mib=sum(tensor.nbytes for tensor in batch.values()) / _MIB,
        batches_held=(shared.files - shared_tensors) / len(batch) if shared else None,
    )


def _is_shared(tensor: Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _same(loaded: Steps, sliced: Steps) -> list[bool]:
    """Tell of each batch whether it has the bits of the one sliced in memory."""
    pairs = [(one[0].batch, other[0].batch) for one, other in zip(loaded, sliced, strict=True)]
    return [a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in pairs]


if __name__ == "__main__":
    sys.exit(main())
