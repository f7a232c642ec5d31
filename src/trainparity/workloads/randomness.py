"""Randomness as a function of (seed, epoch, sample): the same on any device count, order or worker."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor


class SampleRandomness:
    """Random numbers for a batch of samples, each from its own counter-based generator.

    Philox4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a
    counter into random bits without state. The key is (seed, epoch); the sample and the index of the draw
    take the counter's upper half, so that no two samples ever share a block.
    """

    def __init__(self, seed: int, epoch: int, samples: Tensor) -> None:
        """Take the run's seed, the epoch and the samples' indices in the dataset, int64 [B]."""
        self._key = np.array([seed, epoch], dtype=np.uint64)
        self._samples = samples.tolist()
        self._draws = 0

    def normal(self, *shape: int) -> Tensor:
        """Draw from the standard normal distribution: float32 [B, *shape]."""
        return self._stack([g.standard_normal(shape, dtype=np.float32) for g in self._generators()])

    def uniform(self, *shape: int) -> Tensor:
        """Draw uniformly from [0, 1): float32 [B, *shape]."""
        return self._stack([g.random(shape, dtype=np.float32) for g in self._generators()])

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Draw integers uniformly from [low, high): int64 [B, *shape]."""
        return self._stack([g.integers(low, high, shape) for g in self._generators()])

    def _generators(self) -> Iterator[np.random.Generator]:
        """Yield the generator of each sample; every draw gets counters of its own.

        It is one generator that is set to each sample's counter: to make one takes longer than to draw.
        """
        self._draws += 1
        philox = np.random.Philox(key=self._key, counter=np.array([0, 0, self._draws, 0], dtype=np.uint64))
        generator, state = np.random.Generator(philox), philox.state
        for sample in self._samples:
            state["state"]["counter"][3] = sample
            philox.state = state
            yield generator

    @staticmethod
    def _stack(values: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(values))
