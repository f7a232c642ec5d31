"""The interface of a strategy; its defaults are `single`: one process, one device."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and as what this process runs."""

    device: torch.device
    rank: int = 0
    world_size: int = 1
    num_replicas: int = 1
    """Replicas inside this process (`data_parallel`)."""
    offload_parameters: bool = False


class Strategy:
    """One process that sees the whole global batch: every member is the identity.

    The four places where a distributed script differs from a plain one are its members: wrap the model,
    take this rank's samples, hold gradient synchronisation back, sum over ranks.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    def compile(self, model: nn.Module, blocks: Sequence[nn.Module], mode: str) -> None:
        """Compile the model in place, which keeps its parameters' names. Called before `setup`."""
        model.compile(mode=mode)

    def setup(self, model: nn.Module, blocks: Sequence[nn.Module]) -> nn.Module:
        """Move the model to its device and return what the loss calls. Called before the optimizer is made."""
        return model.to(self.execution.device)

    def shard(self, samples: Tensor) -> Tensor:
        """Return this rank's part of a global batch: samples rank, rank + world size, ..."""
        return samples[self.execution.rank :: self.execution.world_size]

    def accumulating(self, model: nn.Module) -> AbstractContextManager[None]:
        """Hold gradient synchronisation back for the backward of all micro-batches but the last."""
        return nullcontext()

    def sum(self, values: Tensor) -> Tensor:
        """Sum a CPU tensor over the ranks."""
        return values

    def gather(self, values: Tensor) -> Tensor:
        """Stack a CPU tensor of every rank: [world size, ...]."""
        return values[None]
