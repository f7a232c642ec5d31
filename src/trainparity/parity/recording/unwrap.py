"""From what a training loop holds to the plain module and optimizer inside."""

import operator
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainparity.parity.recording.kinds import is_fsdp, is_optimized, is_sharded


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the module inside DDP, `nn.DataParallel`, `torch.compile` and Lightning Fabric's wrapper.

    Of a list of models, as of one beside its average, the list of what is inside of each.
    """
    while True:
        if (inside := _without_ranks(model)) is not model:
            model = inside
        elif is_optimized(model):
            model = model._orig_mod
        else:
            return _of_parts(model) if type(model) is nn.ModuleList else model


def _of_parts(models: nn.ModuleList) -> nn.ModuleList:
    inside = [_without_ranks(model) for model in models]
    return models if all(map(operator.is_, inside, models)) else nn.ModuleList(inside)


def _without_ranks(model: nn.Module) -> nn.Module:
    """Return the module inside of what reduces gradients over ranks or devices."""
    while isinstance(model, DistributedDataParallel | nn.DataParallel) or _is_fabric(model):
        model = cast(nn.Module, model.module)
    return model


def reshard(model: nn.Module) -> None:
    """Put FSDP2's shards, which optimizers hold, where a forward pass without gradients left whole parameters."""
    for module in model.modules():
        if is_fsdp(module):
            module.reshard()


_INSIDE = ("_orig_mod", "_checkpoint_wrapped_module")
"""Where `torch.compile` and activation checkpointing keep the module that they wrap."""


def plain_name(name: str) -> str:
    """Return what a parameter, buffer or module is called where no part of the model is wrapped."""
    return ".".join(part for part in name.split(".") if part not in _INSIDE)


def named_parts(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the modules of a model by name, without what wraps a part of it."""
    parts = ((plain_name(name), module) for name, module in model.named_modules())
    return [(name, module) for name, module in parts if not any(inside in module._modules for inside in _INSIDE)]


def unwrap_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer inside Accelerate's, Lightning's and Fabric's wrappers, which hold it as `optimizer`.

    And inside of those that have no hooks of their own, as PyTorch's `PostLocalSGDOptimizer` or a Lookahead that leaves
    out `torch.optim.Optimizer.__init__`.
    """
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    optimizer = next(iter(optimizers_inside(optimizer)), optimizer)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"the optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
    if not _has_hooks(optimizer):
        name = type(optimizer).__name__
        raise TypeError(f"{name} never called torch.optim.Optimizer.__init__, which makes the hooks of its step")
    return optimizer


def optimizers_inside(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Return the optimizers inside of one without hooks of its own: its attributes, or in its lists and dicts."""
    if _has_hooks(optimizer):
        return []
    held: list[Any] = []
    for value in getattr(optimizer, "__dict__", {}).values():
        held += value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else [value]
    found = (one for one in held if isinstance(one, torch.optim.Optimizer))
    return [*{id(one): one for one in found}.values()]


def plain_optimizers(optimizer: Any) -> list[torch.optim.Optimizer]:
    """Return what `unwrap_optimizer` returns of one; of a wrapper of several without hooks of its own, of each."""
    return [*map(unwrap_optimizer, optimizers_inside(optimizer) or [optimizer])]


def _has_hooks(optimizer: Any) -> bool:
    """Tell whether hooks can be set on an optimizer's step: by PyTorch's own `__init__`, or as it takes them itself."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return False
    itself = type(optimizer).register_step_post_hook is not torch.optim.Optimizer.register_step_post_hook
    return itself or hasattr(optimizer, "_optimizer_step_pre_hooks")


def own_part(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return what makes the updates of this rank: the optimizer inside `ZeroRedundancyOptimizer`, or itself."""
    return optimizer.optim if is_sharded(optimizer) else optimizer


def is_compiled(model: nn.Module) -> bool:
    """Tell whether a plain module, or a part of it, runs compiled: Python hooks inside would break its graph."""
    return any(is_optimized(module) or module._compiled_call_impl is not None for module in model.modules())


def hookable(model: nn.Module) -> nn.Module | None:
    """Return what is called in a compiled model's place, and not compiled itself: hooks on it break no graph.

    That is `torch.compile`'s wrapper, or a module of which parts are compiled; None after `module.compile()`.
    """
    model = _without_ranks(model)
    return model if model._compiled_call_impl is None else None


def _is_fabric(model: nn.Module) -> bool:
    kind = type(model)
    return kind.__name__ == "_FabricModule" and kind.__module__.startswith(("lightning", "lightning_fabric"))
