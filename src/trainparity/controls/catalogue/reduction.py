"""Faults of the reduction over ranks."""

import contextlib
from contextlib import AbstractContextManager

import torch.distributed as dist
from torch import Tensor, nn

from trainparity.controls.catalogue.right import DdpAccumulated
from trainparity.controls.loop import Ddp, Loop
from trainparity.parity.recording import ranks


class WrapperBypassed(Ddp):
    """The forward pass calls the module inside DDP: nothing is reduced."""

    def losses(self, part: Tensor) -> Tensor:
        logits = self.plain(self.inputs(part))
        return nn.functional.cross_entropy(logits, self.labels[part], reduction="none")


class WrongMicroBatchSynchronised(DdpAccumulated):
    """no_sync around the last micro-batch instead of the first."""

    def synchronising(self, number: int, count: int) -> AbstractContextManager[object]:
        assert isinstance(self.model, nn.parallel.DistributedDataParallel)
        return contextlib.nullcontext() if number == 0 else self.model.no_sync()


class PartlyReduced(Loop):
    """Gradients all-reduced by hand, one parameter forgotten."""

    def reduce(self) -> None:
        for parameter in list(self.plain.parameters())[:-1]:
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class UsedOnOneRank(Loop):
    """A parameter that takes part on rank 0 only, and a hand-made reduction that skips what is missing elsewhere."""

    def reduce(self) -> None:
        parameters = list(self.plain.parameters())
        if ranks.rank():
            parameters[0].grad = None
        for parameter in parameters[1:]:
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
