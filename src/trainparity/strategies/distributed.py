"""What every strategy of several processes shares."""

from typing import TYPE_CHECKING

from trainparity.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor


class Distributed(Strategy):
    """Ranks that gather the loop's few CPU numbers over gloo."""

    distributed = True

    @classmethod
    def misfit(cls, world_size: int, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Run with any number of ranks."""
        return cls.unsplit(tensor_parallel_size)

    def gather(self, values: "Tensor") -> "Tensor":
        """Stack every rank's tensor: [world size, ...]."""
        import torch

        parts = [torch.empty_like(values) for _ in range(self.execution.world_size)]
        torch.distributed.all_gather(parts, values.contiguous())
        return torch.stack(parts)
