"""What torch made an object of, told without importing what makes it: DTensor costs 0.4 s to import, Dynamo 1.5 s.

An object of a class exists only where the class's module is imported, so that one is looked up, never imported.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._dynamo import OptimizedModule
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import DTensor
    from torch.masked import MaskedTensor
    from typing_extensions import TypeIs


def is_dtensor(value: object) -> "TypeIs[DTensor]":
    """Tell whether a tensor is spread over a device mesh."""
    return _is("torch.distributed.tensor", "DTensor", value)


def is_awaited(value: object) -> bool:
    """Tell whether a tensor is what a collective will have returned."""
    return _is("torch.distributed._functional_collectives", "AsyncCollectiveTensor", value)


def is_masked(value: object) -> "TypeIs[MaskedTensor]":
    """Tell whether a tensor is masked (`torch.masked`)."""
    return _is("torch.masked", "MaskedTensor", value)


def is_fsdp(module: object) -> "TypeIs[FSDPModule]":
    """Tell whether `fully_shard` was called on a module."""
    return _is("torch.distributed.fsdp", "FSDPModule", module)


def is_fsdp1(module: object) -> "TypeIs[FullyShardedDataParallel]":
    """Tell whether a module is a wrapper of FSDP's first version."""
    return _is("torch.distributed.fsdp", "FullyShardedDataParallel", module)


def is_optimized(module: object) -> "TypeIs[OptimizedModule]":
    """Tell whether a module is what `torch.compile` returned."""
    return _is("torch._dynamo", "OptimizedModule", module)


def is_scripted(module: object) -> bool:
    """Tell whether `torch.jit.script` made a module: it takes no hooks, where one of `torch.jit.trace` does."""
    return _is("torch.jit", "RecursiveScriptModule", module)


def is_sharded(optimizer: object) -> "TypeIs[ZeroRedundancyOptimizer]":
    """Tell whether an optimizer holds another one of what this rank updates, and sends that to the other ranks."""
    return _is("torch.distributed.optim.zero_redundancy_optimizer", "ZeroRedundancyOptimizer", optimizer)


def _is(module: str, name: str, value: Any) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)
