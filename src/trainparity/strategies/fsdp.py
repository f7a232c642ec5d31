"""FSDP2 (`fully_shard`): parameters, gradients and optimizer state sharded over the ranks, offloaded on request."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from trainparity.strategies.distributed import Distributed


class Fsdp(Distributed):
    """Each block gathers its parameters when it runs and frees them after."""

    def compile(self, model: nn.Module, blocks: Sequence[nn.Module], mode: str) -> None:
        """Compile block by block: FSDP's hooks between the blocks would break one graph of the whole model."""
        for part in blocks or (model,):
            part.compile(mode=mode)

    def setup(self, model: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """Shard the blocks, then what is left; offloaded parameters wait in host memory."""
        device = self.execution.device
        # Without an explicit mesh, fully_shard looks for an accelerator.
        mesh = init_device_mesh(device.type, (self.execution.world_size,))
        policy = OffloadPolicy()
        if self.execution.offload_parameters:
            policy = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        else:
            model.to(device)
        for part in (*blocks, model):
            fully_shard(part, mesh=mesh, offload_policy=policy)
        for buffer in model.buffers():  # the policy offloads parameters only
            buffer.data = buffer.data.to(device)
        return model

    def accumulating(self, model: nn.Module) -> AbstractContextManager[None]:
        """Skip the reduce-scatter of this backward."""
        assert isinstance(model, FSDPModule)
        return _without_sync(model)


@contextmanager
def _without_sync(model: FSDPModule) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
