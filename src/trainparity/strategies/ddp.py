"""`DistributedDataParallel`: a process per rank, gradients averaged while backward runs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainparity.strategies.base import Strategy


class Distributed(Strategy):
    """What every strategy of several processes shares: sums and gathers of CPU tensors over gloo."""

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the ranks."""
        total = values.clone()
        dist.all_reduce(total)
        return total

    def gather(self, values: Tensor) -> Tensor:
        """Stack every rank's tensor: [world size, ...]."""
        parts = [torch.empty_like(values) for _ in range(self.execution.world_size)]
        dist.all_gather(parts, values)
        return torch.stack(parts)


class Ddp(Distributed):
    """Every rank holds the whole model; no master."""

    def setup(self, model: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """Wrap the model, which also broadcasts rank 0's weights."""
        return DistributedDataParallel(model.to(self.execution.device))

    def accumulating(self, model: nn.Module) -> AbstractContextManager[None]:
        """Skip the all-reduce of this backward."""
        assert isinstance(model, DistributedDataParallel)
        return model.no_sync()
