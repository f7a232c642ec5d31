"""Faults of the loss's division."""

import torch.distributed as dist
from torch import Tensor, nn

from trainparity.controls.catalogue.right import Accumulated, Contrast, Uneven
from trainparity.controls.loop import Ddp, Fsdp, Loop
from trainparity.parity.recording import ranks


class Undivided(Accumulated):
    """Each micro-batch's mean, not divided by their number."""

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        return self.losses(part).mean()


class MeanOfMeans(Uneven):
    """The mean of the means of uneven micro-batches."""

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        return self.losses(part).mean() / parts


class SummedOverRanks(Loop):
    """Gradients all-reduced by hand, summed and not averaged."""

    def reduce(self) -> None:
        for parameter in self.plain.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)


class UnevenRanks(Ddp):
    """Each rank's own mean over shards of unequal size, averaged by DDP."""

    def shard(self, batch: Tensor) -> Tensor:
        return (batch[:11], batch[11:])[ranks.rank()]

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        return self.losses(part).mean()


class UnevenRanksOfShards(Fsdp):
    """The same where FSDP2 averages: no micro-batch's own gradient is seen there."""

    shard, loss = UnevenRanks.shard, UnevenRanks.loss


class ContrastOfFewer(Contrast):
    """A contrastive loss over each micro-batch: a sample is compared with half as many others."""

    accumulation_steps = 2


class LabelsShifted(Accumulated):
    """Each sample is given its neighbour's label."""

    def losses(self, part: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.logits(part), self.labels[part - 1], reduction="none")


class Penalised(Loop):
    """The squares of the weights in the loss, beside the optimizer's weight decay."""

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        penalty = sum(parameter.square().sum() for parameter in self.plain.parameters())
        return super().loss(part, global_count, parts) + 1e-2 * penalty


class SoftmaxTwice(Loop):
    """A softmax before a loss that has its own."""

    def losses(self, part: Tensor) -> Tensor:
        probabilities = self.model(self.inputs(part)).softmax(1)
        return nn.functional.cross_entropy(probabilities, self.labels[part], reduction="none")
