"""The interface of a strategy; its defaults are `single`: one process, one device.

Settings are checked by a strategy's class attributes and class methods, without torch. So these modules import torch
inside the methods that train.
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
    """The device and the place among the ranks that this process has."""

    device: "torch.device"
    rank: int = 0
    world_size: int = 1
    group_size: int = 1
    """Ranks that train one replica of the model together, on the same samples; their numbers are consecutive."""
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
    """The methods of a workload that divide its model."""

    def blocks(self, model: "nn.Module") -> "Sequence[nn.Module]":
        """Return the parts of the model to be sharded or compiled one by one; none: the model is one part."""

    def tensor_parallel_plan(self, model: "nn.Module") -> Mapping[str, Any]:
        """Return the `ParallelStyle` of each module to be split over ranks, by the module's name."""


class Strategy:
    """One process that sees the whole global batch: every member is the identity.

    A distributed script differs from a plain one in four places, which are methods here: wrap the model, take this
    rank's samples, suppress gradient synchronisation, sum over ranks.
    """

    distributed: ClassVar[bool] = False
    """Whether ranks are processes that talk to each other."""
    replicas: ClassVar[str] = ""
    """Name of what replicates the model over several devices inside one process; empty: nothing does."""
    offloads_parameters: ClassVar[bool] = False
    """Whether parameters can wait in host memory."""
    keeps_strides: ClassVar[bool] = True
    """Whether parameters keep a memory format such as channels_last."""
    reduces_in_backward: ClassVar[bool] = False
    """Whether `accumulating` leaves out all communication of a step, as gradients are averaged in backward alone."""
    compiles_blocks: ClassVar[bool] = False
    """Whether the workload's blocks are always compiled apart."""

    @classmethod
    def misfit(cls, world_size: int, tensor_parallel_size: int) -> tuple[str, str] | None:
        """Return a setting with which the strategy cannot run, and what is allowed; None if there is none."""
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

    def setup(self, model: "nn.Module", workload: Divisible) -> "nn.Module":
        """Move the model to its device and return what the loss calls. Called before the optimizer is made."""
        return model.to(self.execution.device)

    def shard(self, samples: "Tensor") -> "Tensor":
        """Return this rank's part of a global batch: samples g, g + G, ... of group g of G."""
        group, groups = self.execution.group, self.execution.num_groups
        return samples if groups == 1 else samples[group::groups]

    def accumulating(self, model: "nn.Module") -> AbstractContextManager[None]:
        """Suppress gradient synchronisation in the backward pass of a micro-batch that is not the last."""
        return nullcontext()

    def sum(self, values: "Tensor") -> "Tensor":
        """Sum a CPU tensor over the groups; all ranks of a group have the same values."""
        return self.gather(values)[:: self.execution.group_size].sum(0)

    def gather(self, values: "Tensor") -> "Tensor":
        """Stack a CPU tensor of every rank: [world size, ...]."""
        return values[None]
