"""Right loops: never `different`."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from trainparity.controls.loop import GLOBAL_BATCH, STEPS, Ddp, Fsdp, Loop
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder
from trainparity.strategies.cpu_replicas import CpuReplicas


class Itself(Loop):
    """The reference again."""


class Accumulated(Loop):
    """Two micro-batches."""

    accumulation_steps = 2


class AccumulatedByFour(Loop):
    """Four micro-batches."""

    accumulation_steps = 4


class Contrast(Loop):
    """A contrastive loss, which compares each sample with all others of its pass."""

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        outputs = nn.functional.normalize(self.model(self.inputs(part)))
        alike = (self.labels[part][:, None] == self.labels[part]).float()
        return nn.functional.cross_entropy(outputs @ outputs.T, alike / alike.sum(1, keepdim=True)) / parts


class Uneven(Loop):
    """Micro-batches of unequal size, divided by the global count."""

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        return shard[:11], shard[11:]


class Backwards(Loop):
    """Samples in another order within each batch."""

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        return (shard.flip(0),)


class Scaled(Loop):
    """A loss scale, a power of two, taken away again."""

    def __init__(self, model: str, seed: int) -> None:
        super().__init__(model, seed)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


class Compiled(Loop):
    """The model compiled."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return cast(nn.Module, torch.compile(model))


class Replicas(Loop):
    """`nn.DataParallel`'s algorithm over two replicas on the CPU."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return CpuReplicas(model, 2)

    def record(self, folder: Path, twin: int) -> Recorder:
        return record(self.plain, self.optimizer, folder, first=STEPS, twin=twin)


class DdpAccumulated(Ddp):
    """DDP with two micro-batches a rank."""

    accumulation_steps = 2


class FsdpAccumulated(Fsdp):
    """FSDP2 with two micro-batches a rank."""

    accumulation_steps = 2


class SameMicroBatches(Loop):
    """The shards of two ranks, one after the other: what DDP is the same training as, BatchNorm or not."""

    accumulation_steps = 2

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        return shard[0::2], shard[1::2]


class OddBatch(Loop):
    """A batch that does not divide among the ranks: the reference of PaddedShards."""

    def global_batch(self, step: int) -> Tensor:
        return super().global_batch(step)[: GLOBAL_BATCH - 1]


class UnevenShards(Ddp):
    """A batch that does not divide among the ranks, not padded, divided by the global count."""

    def global_batch(self, step: int) -> Tensor:
        return super().global_batch(step)[: GLOBAL_BATCH - 1]


class Unclipped(Loop):
    """Does not clip gradients: the reference of NotUnscaled."""

    clip_norm = None


class InBf16(Loop):
    """The forward pass under bf16 autocast, the loss in fp32: the reference of runs in that precision."""

    coarse, computed_in = True, torch.bfloat16

    def logits(self, part: Tensor) -> Tensor:
        with torch.autocast("cpu", self.computed_in):
            return super().logits(part).float()


class AccumulatedInBf16(InBf16):
    """Four micro-batches under bf16 autocast."""

    accumulation_steps = 4


class ChannelsLast(Loop):
    """Another memory layout of images and convolutions."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return model.to(memory_format=torch.channels_last)

    def inputs(self, part: Tensor) -> Tensor:
        return super().inputs(part).to(memory_format=torch.channels_last)


class CalledByParts(Accumulated):
    """A model whose layers the loop calls one after the other."""

    def losses(self, part: Tensor) -> Tensor:
        outputs = self.inputs(part)
        for layer in self.plain.children():
            outputs = layer(outputs)
        return nn.functional.cross_entropy(outputs, self.labels[part], reduction="none")


class Validated(Loop):
    """Validation before each step, in evaluation mode; nobody thought of no_grad."""

    def seed_step(self, step: int) -> None:
        self.plain.eval()
        self.plain(self.images[-7:])
        self.plain.train()
        super().seed_step(step)


class Cancelling(Loop):
    """Losses that are added and subtracted, as a critic's are: gradients of the samples nearly cancel."""

    def losses(self, part: Tensor) -> Tensor:
        signs = 1.0 - 2.0 * (part % 2)
        small: Tensor = 1e-3 * self.model(self.inputs(part)).square().mean(1)
        return super().losses(part) * signs + small


class CancellingAccumulated(Cancelling):
    """Four micro-batches of them."""

    accumulation_steps = 4
