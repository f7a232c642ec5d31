"""FSDP2 (`fully_shard`): parameters, gradients and optimizer state sharded over the ranks, offloaded on request."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from trainparity.strategies.base import Divisible
from trainparity.strategies.distributed import Distributed

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule


class Fsdp(Distributed):
    """Each block gathers its parameters before it runs and frees them after that."""

    offloads_parameters = True
    keeps_strides = False  # `fully_shard` refuses parameters that are not contiguous
    compiles_blocks = True  # its hooks between the blocks would break one graph of the whole model

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Shard the blocks and then the remaining parameters; offloaded parameters stay in host memory."""
        from torch.distributed.device_mesh import init_device_mesh

        # Without an explicit mesh, fully_shard looks for an accelerator.
        mesh = init_device_mesh(self.execution.device.type, (self.execution.world_size,))
        return self.fully_shard(model, workload, mesh)

    def fully_shard(self, model: "nn.Module", workload: Divisible, mesh: "DeviceMesh") -> "nn.Module":
        """Shard over the ranks of a mesh of one dimension."""
        from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

        device = self.execution.device
        policy = OffloadPolicy()
        if self.execution.offload_parameters:
            policy = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        else:
            model.to(device)
        for part in (*(block for block in workload.blocks(model) if block is not model), model):
            fully_shard(part, mesh=mesh, offload_policy=policy)
        for buffer in model.buffers():  # the policy offloads parameters only
            buffer.data = buffer.data.to(device)
        return model

    def accumulating(self, model: "nn.Module") -> AbstractContextManager[None]:
        """Skip the reduce-scatter of this backward pass."""
        from torch.distributed.fsdp import FSDPModule

        assert isinstance(model, FSDPModule)
        return _without_sync(model)


@contextmanager
def _without_sync(model: "FSDPModule") -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
