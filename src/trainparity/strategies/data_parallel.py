"""`nn.DataParallel`: one process, the batch scattered over replicas; without GPUs its algorithm on the CPU."""

from typing import TYPE_CHECKING

from trainparity.strategies.base import Divisible, Strategy

if TYPE_CHECKING:
    from torch import nn


class DataParallel(Strategy):
    """DP of articles B and D: one process scatters inputs, gathers outputs and updates the weights."""

    replicas = "nn.DataParallel"

    @classmethod
    def misfit(cls, world_size: int, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Run over two replicas or more."""
        if world_size < 2:
            return "world_size", "2 or more replicas to split a batch over"
        return cls.unsplit(tensor_parallel_size)

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Wrap the model for as many GPUs or CPU replicas as the configuration's world size."""
        from torch import nn

        from trainparity.strategies.cpu_replicas import CpuReplicas

        replicas = self.execution.num_replicas
        if self.execution.device.type == "cuda":
            return nn.DataParallel(model.to(self.execution.device), device_ids=list(range(replicas)))
        return CpuReplicas(model, replicas)
