"""Faults of the samples."""

import torch
from torch import Tensor

from trainparity.controls.loop import GLOBAL_BATCH, Ddp, Loop
from trainparity.parity.recording import ranks


class SampleLeftOut(Loop):
    """One sample of the third step is lost, and the count is right."""

    def global_batch(self, step: int) -> Tensor:
        batch = super().global_batch(step)
        return batch[1:] if step == 2 else batch


class SampleTwice(Loop):
    """A sampler that pads a batch with a sample it has already."""

    def global_batch(self, step: int) -> Tensor:
        batch = super().global_batch(step)
        return torch.cat([batch[:-1], batch[:1]])


class EpochNotSet(Loop):
    """Shuffled with another seed: set_epoch was not called."""

    def global_batch(self, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randperm(len(self.images), generator=generator)[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]


class NotSharded(Ddp):
    """No DistributedSampler: every rank sees rank 0's samples."""

    def shard(self, batch: Tensor) -> Tensor:
        return batch[:: ranks.world_size()]


class PaddedShards(Ddp):
    """A last batch that does not divide among the ranks, padded with a sample seen already."""

    def global_batch(self, step: int) -> Tensor:
        return super().global_batch(step)[: GLOBAL_BATCH - 1]

    def shard(self, batch: Tensor) -> Tensor:
        return super().shard(torch.cat([batch, batch[:1]]))


class OtherPreprocessing(Loop):
    """Images scaled to another range."""

    def inputs(self, part: Tensor) -> Tensor:
        return 2 * super().inputs(part) - 1
