"""Which samples make up each global batch, and how a batch is cut: the same for every configuration."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

# The last number of a counter of SampleRandomness is a sample's index, which is always below these.
_EPOCH_ORDER = 2**64 - 1
_TWIN_ORDER = 2**64 - 2

Samples = TypeVar("Samples", Tensor, list[int])


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Global batches as a function of (seed, step); every epoch visits every sample once."""

    num_samples: int
    global_batch_size: int
    seed: int
    shuffle: bool
    order: int = 0
    """Not 0 (a twin): each global batch holds the same samples in another order."""

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch; the last one may have fewer samples."""
        return -(-self.num_samples // self.global_batch_size)

    def epoch(self, step: int) -> int:
        """Return the epoch that a step belongs to."""
        return step // self.steps_per_epoch

    def batch_size(self, step: int) -> int:
        """Return how many samples the global batch of a step has."""
        return min(self.global_batch_size, self.num_samples - step % self.steps_per_epoch * self.global_batch_size)

    def global_batch(self, step: int) -> Tensor:
        """Return the samples of one optimizer step: int64 [B], B at most `global_batch_size`."""
        order = _order(self.num_samples, self.seed, self.epoch(step), self.shuffle)
        first = step % self.steps_per_epoch * self.global_batch_size
        batch = order[first : first + self.global_batch_size]
        if self.order:
            batch = batch[_generator(self.seed, step, _TWIN_ORDER - self.order).permutation(len(batch))]
        return torch.from_numpy(batch.copy())


def strided(samples: Samples, part: int, parts: int) -> Samples:
    """Return one of several parts of a batch: samples part, part + parts, ... Ranks and micro-batches are cut so."""
    return samples if parts == 1 else samples[part::parts]  # a view costs a microsecond


@lru_cache(maxsize=2)
def _order(num_samples: int, seed: int, epoch: int, shuffle: bool) -> np.ndarray:
    samples = np.arange(num_samples)
    return _generator(seed, epoch, _EPOCH_ORDER).permutation(samples) if shuffle else samples


def _generator(seed: int, index: int, purpose: int) -> np.random.Generator:
    key, counter = np.array([seed, index], dtype=np.uint64), np.array([0, 0, 0, purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
