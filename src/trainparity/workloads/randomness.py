"""Randomness as a function of (seed, epoch, sample): the same on any device count, order or worker."""

from collections.abc import Iterator
from math import prod

import numpy as np
import torch
from torch import Tensor

from trainparity.workloads import philox


class SampleRandomness:
    """Random numbers for a batch of samples, each from its own counter-based generator.

    Philox4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a
    counter into random bits without state. The key is (seed, epoch); the sample and the index of the draw
    take the counter's upper half, so that no two samples ever share a block.
    """

    def __init__(self, seed: int, epoch: int, samples: Tensor) -> None:
        """Take the run's seed, the epoch and the samples' indices in the dataset, int64 [B]."""
        self._key = np.array([seed, epoch], dtype=np.uint64)
        self._samples = samples.numpy().astype(np.uint64)
        self._draws = 0

    def normal(self, *shape: int) -> Tensor:
        """Draw from the standard normal distribution: float32 [B, *shape]."""
        return self._stack([g.standard_normal(shape, dtype=np.float32) for g in self._generators()])

    def uniform(self, *shape: int) -> Tensor:
        """Draw uniformly from [0, 1): float32 [B, *shape]."""
        if prod(shape) > _FEW:
            return self._stack([g.random(shape, dtype=np.float32) for g in self._generators()])
        words = self._words(shape) >> np.uint64(8)
        return torch.from_numpy(words.astype(np.float32) * np.float32(2**-24))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Draw integers uniformly from [low, high): int64 [B, *shape]."""
        choices = high - low
        if prod(shape) <= _FEW and 0 < choices < 2**32:
            products = self._words(shape) * np.uint64(choices)
            # Lemire (arXiv 1805.10941): a sample one of whose words would favour some integers draws another word.
            if ((products & np.uint64(2**32 - 1)) >= np.uint64(2**32 % choices)).all():
                return torch.from_numpy((products >> np.uint64(32)).astype(np.int64) + low)
            self._draws -= 1
        return self._stack([g.integers(low, high, shape) for g in self._generators()])

    def _words(self, shape: tuple[int, ...]) -> philox.Words:
        """Draw 32-bit words for each sample at once: uint64 [B, *shape]."""
        self._draws += 1
        return philox.words(self._key, self._draws, self._samples, prod(shape)).reshape(-1, *shape)

    def _generators(self) -> Iterator[np.random.Generator]:
        """Yield the generator of each sample; every draw gets counters of its own.

        It is one generator that is set to each sample's counter: to make one takes longer than to draw.
        """
        self._draws += 1
        philox = np.random.Philox(key=self._key, counter=np.array([0, 0, self._draws, 0], dtype=np.uint64))
        generator, state = np.random.Generator(philox), philox.state
        for sample in self._samples.tolist():
            state["state"]["counter"][3] = sample
            philox.state = state
            yield generator

    @staticmethod
    def _stack(values: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(values))


_FEW = 64
"""Numbers of a sample up to which all samples' are drawn together; more are drawn faster one sample at a time."""
