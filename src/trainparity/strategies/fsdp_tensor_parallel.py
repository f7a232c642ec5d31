"""FSDP2 over groups of ranks, tensor parallelism inside each: parameters are sharded over both dimensions of a mesh."""

from typing import TYPE_CHECKING

from trainparity.strategies.base import Divisible
from trainparity.strategies.fsdp import Fsdp
from trainparity.strategies.tensor_parallel import split

if TYPE_CHECKING:
    from torch import nn


class FsdpTensorParallel(Fsdp):
    """Each group of `tensor_parallel_size` ranks computes the matrix products together; FSDP works across groups."""

    @classmethod
    def misfit(cls, world_size: int, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Run with several groups of equal size."""
        if tensor_parallel_size < 2 or world_size % tensor_parallel_size:
            return "tensor_parallel_size", f"a divisor of world_size {world_size} above 1"
        return None

    @classmethod
    def group_size(cls, world_size: int, tensor_parallel_size: int) -> int:
        """Return the size of the tensor-parallel groups."""
        return tensor_parallel_size

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Split matrices inside each group first: FSDP shards the parts that it finds."""
        from torch.distributed.device_mesh import init_device_mesh

        shape = (self.execution.num_groups, self.execution.group_size)
        mesh = init_device_mesh(self.execution.device.type, shape, mesh_dim_names=("data", "model"))
        return self.fully_shard(split(model, workload, mesh["model"]), workload, mesh["data"])
