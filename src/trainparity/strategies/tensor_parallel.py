"""Tensor parallelism (`parallelize_module`): each rank holds a part of every large matrix and sees all samples.

Source: Shoeybi et al., "Megatron-LM: Training multi-billion parameter language models using model parallelism"
(arXiv 1909.08053).
"""

from typing import TYPE_CHECKING

from trainparity.strategies.base import Divisible
from trainparity.strategies.distributed import Distributed
from trainparity.validation import ParamsError

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


class TensorParallel(Distributed):
    """All ranks are one group: they compute each matrix product of the plan together."""

    @classmethod
    def misfit(cls, world_size: int, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Run with any number of ranks; the size of the group follows from it."""
        if tensor_parallel_size not in (1, world_size):
            return "tensor_parallel_size", f"{world_size} or nothing, as all ranks are one group"
        return None

    @classmethod
    def group_size(cls, world_size: int, tensor_parallel_size: int) -> int:
        """Return the number of ranks."""
        return world_size

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Split the matrices of the workload's plan over the ranks."""
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(self.execution.device.type, (self.execution.world_size,))
        return split(model.to(self.execution.device), workload, mesh)


def split(model: "nn.Module", workload: Divisible, mesh: "DeviceMesh") -> "nn.Module":
    """Split matrices over the ranks of a mesh of one dimension; raise `ParamsError` if the workload has no plan."""
    from torch.distributed.tensor.parallel import parallelize_module

    plan = dict(workload.tensor_parallel_plan(model))
    if not plan:
        raise ParamsError(f"{type(workload).__name__} has no tensor_parallel_plan, which tensor parallelism needs")
    return parallelize_module(model, mesh, plan)
