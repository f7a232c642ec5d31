"""What every strategy of several processes shares."""

import torch
import torch.distributed as dist
from torch import Tensor

from trainparity.strategies.base import Strategy


class Distributed(Strategy):
    """Ranks that sum and gather the loop's few CPU numbers over gloo."""

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
