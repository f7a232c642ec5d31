"""Which samples each forward and backward pass of one rank sees."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, overload

from torch import Tensor

from trainparity.strategies import Strategy
from trainparity.training.sampler import Sampler, strided
from trainparity.workloads import Batch


class MicroBatch(NamedTuple):
    """What one forward and backward pass sees."""

    batch: Batch
    counted: bool
    """False: a stand-in on a rank that has no sample in an uneven last batch; its loss is multiplied by zero."""


class MicroBatchPlan(Sequence[Tensor]):
    """The samples of a rank's micro-batches, int64 [micro-batch] each, in order; computed when asked for."""

    def __init__(self, sampler: Sampler, strategy: Strategy, parts: int, start: int, stop: int) -> None:
        """Cut the global batches of the steps from `start` up to `stop` into so many parts on each rank."""
        self._sampler, self._strategy, self._count = sampler, strategy, parts
        self._start, self._stop = start, stop
        self._all = [True] * parts
        self._of_step = lru_cache(maxsize=2)(self._cut)

    def __len__(self) -> int:
        return (self._stop - self._start) * self._count

    @overload
    def __getitem__(self, number: int) -> Tensor: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Tensor]: ...
    def __getitem__(self, number: int | slice) -> Tensor | Sequence[Tensor]:
        """Return the samples of one micro-batch; of one that has none, one sample as a stand-in."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        step, part = divmod(number, self._count)
        return self._of_step(self._start + step)[part][0]

    def counted(self, step: int) -> list[bool]:
        """Tell of each micro-batch of a step whether it has samples of its own."""
        if self._sampler.batch_size(step) % (self._strategy.execution.num_groups * self._count) == 0:
            return self._all
        return [counted for _, counted in self._of_step(step)]

    def _cut(self, step: int) -> list[tuple[Tensor, bool]]:
        """Cut a rank's samples into micro-batches: strided, as ranks cut the global batch (article B)."""
        whole = self._sampler.global_batch(step)
        shard = self._strategy.shard(whole)
        parts = [strided(shard, part, self._count) for part in range(self._count)]
        return [(part, True) if part.numel() else (whole[:1], False) for part in parts]
