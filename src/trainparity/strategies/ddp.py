"""`DistributedDataParallel`: a process per rank, gradients averaged while backward runs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainparity.strategies.distributed import Distributed


class Ddp(Distributed):
    """Every rank holds the whole model; no master."""

    def setup(self, model: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """Wrap the model, which also broadcasts rank 0's weights."""
        return DistributedDataParallel(model.to(self.execution.device))

    def accumulating(self, model: nn.Module) -> AbstractContextManager[None]:
        """Skip the all-reduce of this backward."""
        assert isinstance(model, DistributedDataParallel)
        return model.no_sync()
