"""The interface of a strategy; its defaults are `single`: one process, one device.

What settings need to know of a strategy, its class says; so these modules import torch where they run, not here.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and as what this process runs."""

    device: "torch.device"
    rank: int = 0
    world_size: int = 1
    group_size: int = 1
    """Ranks that train one replica of the model together, on the same samples; neighbours."""
    num_replicas: int = 1
    """Replicas inside this process (`data_parallel`)."""
    offload_parameters: bool = False

    @property
    def group(self) -> int:
        """Number of this rank's group: which part of the global batch it sees."""
        return self.rank // self.group_size

    @property
    def num_groups(self) -> int:
        """Parts that a global batch is cut into over the ranks."""
        return self.world_size // self.group_size


class Divisible(Protocol):
    """What a workload says of its model's parts."""

    def blocks(self, model: "nn.Module") -> "Sequence[nn.Module]":
        """Return the model's parts worth sharding or compiling apart; none: the model is one part."""

    def tensor_parallel_plan(self, model: "nn.Module") -> Mapping[str, Any]:
        """Return the `ParallelStyle` of each module to be split over ranks, by the module's name."""


class Strategy:
    """One process that sees the whole global batch: every member is the identity.

    The four places where a distributed script differs from a plain one are its members: wrap the model,
    take this rank's samples, hold gradient synchronisation back, sum over ranks.
    """

    distributed: ClassVar[bool] = False
    """Whether ranks are processes that talk to each other."""
    replicas: ClassVar[str] = ""
    """What copies the model to several GPUs from one process, and runs over CPU replicas elsewhere; empty: nothing."""
    offloads_parameters: ClassVar[bool] = False
    """Whether parameters can wait in host memory."""

    @classmethod
    def misfit(cls, world_size: int, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Return the setting that the strategy cannot be run with, and what it allows; None if it can."""
        if world_size > 1:
            return "world_size", "1, as it is one process on one device"
        return cls.unsplit(tensor_parallel_size)

    @classmethod
    def unsplit(cls, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Return the misfit of a strategy that splits no matrix."""
        return ("tensor_parallel_size", "1, as it splits no matrix") if tensor_parallel_size > 1 else None

    @classmethod
    def group_size(cls, world_size: int, tensor_parallel_size: int) -> int:
        """Return how many ranks train one replica of the model together, on the same samples."""
        return 1

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    def compile(self, model: "nn.Module", workload: Divisible, mode: str) -> None:
        """Compile the model in place, which keeps its parameters' names. Called before `setup`."""
        model.compile(mode=mode)

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Move the model to its device and return what the loss calls. Called before the optimizer is made."""
        return model.to(self.execution.device)

    def shard(self, samples: "Tensor") -> "Tensor":
        """Return this rank's part of a global batch: samples g, g + G, ... of group g of G."""
        return samples[self.execution.group :: self.execution.num_groups]

    def accumulating(self, model: "nn.Module") -> AbstractContextManager[None]:
        """Hold gradient synchronisation back for the backward of all micro-batches but the last."""
        return nullcontext()

    def sum(self, values: "Tensor") -> "Tensor":
        """Sum a CPU tensor over the groups, whose ranks have the same values."""
        return self.gather(values)[:: self.execution.group_size].sum(0)

    def gather(self, values: "Tensor") -> "Tensor":
        """Stack a CPU tensor of every rank: [world size, ...]."""
        return values[None]
