"""Our own training loop over random numbers, as benchmarks step it: no download is needed."""

from collections.abc import Mapping
from itertools import count

import torch
from pairs import Lane
from torch import Tensor

from trainparity.data.manifest import Manifest
from trainparity.data.prepared import Prepared
from trainparity.params import Configuration, Optimizer, Train
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.workloads.base import Workload

CPU = Execution(device=torch.device("cpu"))
SGD = Optimizer(name="sgd", lr=0.01)


def images(samples: int, shape: tuple[int, int, int]) -> dict[str, Tensor]:
    """Return labelled images of one shape: channels, height, width."""
    generator = torch.Generator().manual_seed(0)
    return {
        "images": torch.randint(256, (samples, *shape), dtype=torch.uint8, generator=generator),
        "labels": torch.randint(10, (samples,), generator=generator),
    }


def our_loop(
    workload: Workload,
    tensors: Mapping[str, Tensor],
    batch: int,
    configuration: Configuration | None = None,
    execution: Execution = CPU,
    optimizer: Optimizer = SGD,
) -> Trainer:
    """Return our loop over some samples, `batch` of them a step, for more steps than anybody times."""
    samples = len(next(iter(tensors.values())))
    manifest = Manifest(dataset="random", samples=samples, tensors={}, files={}, source="random", real=False)
    train = Train(seed=0, epochs=10**6, max_steps=None, global_batch_size=batch, optimizer=optimizer)
    return Trainer(workload, Prepared(manifest, dict(tensors)), train, configuration or Configuration(), execution)


def stepping(trained: Trainer) -> Lane:
    """Return what makes the next step each time, its batch prepared as in training."""
    batches, numbers = trained.batches(0, trained.num_steps, trained.configuration.loader), count()
    return lambda: trained.step(next(numbers), next(batches))
