"""`DistributedDataParallel`: a process per rank, gradients averaged while backward runs."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from trainparity.strategies.base import Divisible
from trainparity.strategies.distributed import Distributed

if TYPE_CHECKING:
    from torch import nn


class Ddp(Distributed):
    """Every rank holds the whole model and updates it."""

    reduces_in_backward = True

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Wrap the model, which also broadcasts rank 0's weights."""
        from trainparity.strategies.replicated import Replicated  # imports torch

        return Replicated(model.to(self.execution.device))

    def accumulating(self, model: "nn.Module") -> AbstractContextManager[None]:
        """Skip the all-reduce of this backward pass."""
        from torch.nn.parallel import DistributedDataParallel

        assert isinstance(model, DistributedDataParallel)
        return model.no_sync()
