"""Which module owns the parameters that an optimizer updates, found without the script's help."""

import gc
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from trainparity.parity.recording.unwrap import is_compiled, unwrap_model


class Together(nn.Module):
    """Several modules, and tensors that belong to none, which one optimizer updates; it is never called itself."""

    def __init__(self, modules: Sequence[nn.Module], loose: Sequence[Tensor]) -> None:
        super().__init__()
        for number, module in enumerate(modules):
            inner = unwrap_model(module)
            self.add_module(f"{type(inner).__name__}_{number}", inner)
        for number, tensor in enumerate(loose):
            self._parameters[f"tensor_{number}"] = tensor  # type: ignore[assignment]
        if any(is_compiled(module) for module in modules):
            # The mark of a module that runs compiled: hooks inside would break its graph.
            self._compiled_call_impl = self._call_impl


def parameters_of(optimizer: torch.optim.Optimizer) -> dict[int, Tensor]:
    """Return the tensors that an optimizer updates, by identity."""
    return {id(p): p for group in optimizer.param_groups for p in group["params"]}


def optimizer_of(module: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> torch.optim.Optimizer | None:
    """Return which of some optimizers updates a module: of several the one with most of its elements."""
    held = {id(p): p.numel() for p in module.parameters()}
    shares = {
        number: share
        for number, optimizer in enumerate(optimizers)
        if (share := sum(held.get(key, 0) for key in parameters_of(optimizer)))
    }
    inner = [n for n in shares if not any(_leaves_step_to(optimizers[n], optimizers[m]) for m in shares if m != n)]
    best = max(inner, key=lambda number: (shares[number], number), default=None)
    return None if best is None else optimizers[best]


def updates_for(optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Tell whether an optimizer makes the steps over tensors that were expected of another one."""
    shared = parameters_of(optimizer).keys() & parameters_of(other).keys()
    return bool(shared) and not wraps(optimizer, other)


def wraps(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Tell whether one of two optimizers holds the other, so that both make a step where one is asked to."""
    return _holds(one, other) or _holds(other, one)


def beside(optimizer: torch.optim.Optimizer, others: Sequence[torch.optim.Optimizer]) -> list[torch.optim.Optimizer]:
    """Return the optimizers that train something else beside one, as the other half of a GAN."""
    found: list[torch.optim.Optimizer] = []
    for other in others:
        if all(_apart(other, one) for one in (optimizer, *found)):
            found.append(other)
    return found


def of_one_step(
    optimizer: torch.optim.Optimizer, others: Sequence[torch.optim.Optimizer], called: nn.Module | None
) -> list[torch.optim.Optimizer]:
    """Return the optimizers that make a step together with one: of one class over one module that is called, or many.

    Beside few others, as a GAN's halves, it makes its steps by itself.
    """
    found = [optimizer, *beside(optimizer, others)]
    if len(found) > _MOST + 1:
        return found
    whole = set(map(id, called.parameters())) if called is not None and not _is_lightning(called) else set()
    return [
        one
        for one in found
        if one is optimizer
        or (type(one) is type(optimizer) and {*parameters_of(one), *parameters_of(optimizer)} <= whole)
    ]


_MOST = 8
"""Optimizers beside the first that are recorded by themselves; more are recorded as one."""


def _apart(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    shared = parameters_of(one).keys() & parameters_of(other).keys()
    return one is not other and not shared and not wraps(one, other)


def _leaves_step_to(outer: torch.optim.Optimizer, inner: torch.optim.Optimizer) -> bool:
    """Tell whether an optimizer wraps another one (SAM, Lookahead) that makes the whole step.

    One that holds more tensors (ZeRO) sends what each rank has updated to the others after the inner one's step.
    """
    return _holds(outer, inner) and parameters_of(outer).keys() <= parameters_of(inner).keys()


def _holds(outer: torch.optim.Optimizer, inner: torch.optim.Optimizer) -> bool:
    return any(value is inner for value in vars(outer).values())


def owners_of(optimizer: torch.optim.Optimizer) -> list[nn.Module]:
    """Return the outermost modules that own what an optimizer updates."""
    wanted = parameters_of(optimizer)
    return _outermost([m for m in _modules() if not wanted.keys().isdisjoint(map(id, m.parameters()))])


def model_of(
    optimizer: torch.optim.Optimizer, called: nn.Module | None, others: Sequence[torch.optim.Optimizer] = ()
) -> nn.Module:
    """Return the module to record: what the script calls, where that owns all that the optimizer updates.

    Else the outermost modules that own parts of it: a `LightningModule` whose parts are called one by one, or
    several models. Of a `LightningModule` that holds both halves of a GAN, of which `others` update the rest, it is the
    half, or all parts of it. `called` is the module whose forward pass begins; None if none has been seen.
    """
    wanted = parameters_of(optimizer)
    owners = [module for module in _modules() if not wanted.keys().isdisjoint(map(id, module.parameters()))]
    for whole in filter(_is_lightning, owners):
        half = _half(whole, wanted.keys()) if optimizer_of(whole, others) is not None else None
        if half is not None:
            return half
    if called is not None and wanted.keys() <= set(map(id, called.parameters())):
        # With one device Lightning calls the parts of its module, over ranks the module itself.
        return next((m for m in owners if _is_lightning(m) and _contains(m, called)), called)
    roots = _outermost(owners)
    roots.sort(key=lambda module: len(wanted.keys() & set(map(id, module.parameters()))), reverse=True)
    chosen, left = list[nn.Module](), dict(wanted)
    for root in roots:
        owned = set(map(id, root.parameters()))
        if not left.keys().isdisjoint(owned):
            chosen.append(root)
            left = {key: tensor for key, tensor in left.items() if key not in owned}
    order = {key: place for place, key in enumerate(wanted)}
    chosen.sort(key=lambda module: min(order.get(id(p), len(order)) for p in module.parameters()))
    if not chosen and called is not None and optimizer_of(called, others) is None:
        return called  # its parameters were replaced after the optimizer was made
    return chosen[0] if len(chosen) == 1 and not left else Together(chosen, list(left.values()))


def _modules() -> list[nn.Module]:
    """Return all modules that are alive; `type` looks at no property of objects that are none."""
    return [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]


def _outermost(modules: Sequence[nn.Module]) -> list[nn.Module]:
    inside = {id(part) for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if id(module) not in inside]


def _half(whole: nn.Module, wanted: Collection[int]) -> nn.Module | None:
    """Return the part of a module that has the parameters that are wanted and no others, or its parts together."""
    held = {part: {id(p) for p in part.parameters()} for part in whole.children()}
    within = [part for part, own in held.items() if own and own <= {*wanted}]
    if {key for part in within for key in held[part]} != {*wanted}:
        return None
    return next((part for part in within if held[part] == {*wanted}), None) or Together(_outermost(within), [])


def _contains(outer: nn.Module, inner: nn.Module) -> bool:
    plain = unwrap_model(inner)
    return any(part is plain for part in outer.modules())


def _is_lightning(module: nn.Module) -> bool:
    return any(kind.__name__ == "LightningModule" for kind in type(module).__mro__)
