"""What a model and its optimizer are, which does not change from step to step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.parity.recording.formats import is_inexact, is_packed, number_format, stored_in, where_float64_is
from trainparity.parity.recording.joint import class_of, members_in_use
from trainparity.parity.recording.snapshot import norms
from trainparity.parity.recording.stacks import on_cpu
from trainparity.parity.recording.tensors import shape_of
from trainparity.parity.recording.unwrap import own_part, plain_name

_Dropout = nn.modules.dropout._DropoutNd


def layout_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, modules: Sequence[tuple[str, nn.Module]]
) -> dict[str, Any]:
    """Return fields of a `Layout`; `modules` are the model's, by name."""
    parameters = {plain_name(name): parameter for name, parameter in model.named_parameters()}
    first = {id(parameter): name for name, parameter in parameters.items()}
    every = [(plain_name(name), p) for name, p in model.named_parameters(remove_duplicate=False)]
    stored = stored_in(model).unit_roundoff
    rounded = {
        name: number_format(p.dtype).unit_roundoff
        for name, p in parameters.items()
        if is_inexact(p) and (p.requires_grad or not is_packed(p))
    }
    return {
        "stored_roundoff": stored,
        "stored_apart": {name: unit for name, unit in rounded.items() if unit != stored},
        "parameters": {name: shape_of(parameter) for name, parameter in parameters.items()},
        "modules": {name: _class_of(module) for name, module in modules},
        "tied": {name: first[id(p)] for name, p in every if first[id(p)] != name},
        "modal": [name for name, module in modules if _has_modes(module)],
        "dropped": {name: float(module.p) for name, module in modules if isinstance(module, _Dropout) and module.p},
        "optimizer": class_of(members_in_use(optimizer)),
        "optimizers": _classes(optimizer, parameters),
        "without_limit": all(map(_is_without_limit, members_in_use(optimizer))),
        "hooked": any(map(_is_hooked, members_in_use(optimizer))),
        "choices": _choices(optimizer),
    }


def often_written(model: nn.Module) -> list[str]:
    """Return the parameters that have been written in place more often so far than to initialise them."""
    return [plain_name(name) for name, parameter in model.named_parameters() if parameter._version > _TO_INITIALISE]


_TO_INITIALISE = 12
"""Writes that make a weight's first values at most: a truncated normal's are 5, of which some libraries make two."""


def _classes(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the class of the optimizer that holds a parameter, by its name; of one class there is nothing to tell."""
    held = {
        id(p): name for one in members_in_use(optimizer) for group, name in _named_groups(one) for p in group["params"]
    }
    if len({*held.values()}) < 2:
        return {}
    return {name: held[id(p)] for name, p in parameters.items() if id(p) in held}


def _named_groups(optimizer: torch.optim.Optimizer) -> Iterator[tuple[dict[str, Any], str]]:
    """Name the class that updates each group, with what chooses between its ways, as Muon's with Adam for the rest."""
    groups, kind = optimizer.param_groups, type(optimizer).__name__
    flags = {
        key for group in groups for key, value in group.items() if key.startswith("use_") and isinstance(value, bool)
    }
    chosen = sorted(key for key in flags if len({bool(group.get(key)) for group in groups}) > 1)
    for group in groups:
        ways = ", ".join(f"{key}: {bool(group.get(key))}" for key in chosen)
        yield group, f"{kind} ({ways})" if ways else kind


def _is_without_limit(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether PyTorch's own code makes the steps; of its optimizers Adafactor alone has a limit."""
    return type(optimizer).step.__module__.startswith("torch.optim.") and not isinstance(
        optimizer, torch.optim.Adafactor
    )


def _is_hooked(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether a step calls hooks other than the Recorder's."""
    hooks = [getattr(optimizer, f"_optimizer_step_{when}_hooks", {}).values() for when in ("pre", "post")]
    return any(not str(getattr(hook, "__module__", "")).startswith("trainparity.") for each in hooks for hook in each)


def _choices(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Return the optimizer's options that are words, or None, by name; those of all groups where they differ."""
    found: dict[str, dict[str, None]] = {}
    for group in optimizer.param_groups:
        for key in optimizer.defaults.keys() & group.keys():
            if group[key] is None or isinstance(group[key], str):
                found.setdefault(key, {})[str(group[key])] = None
    return {key: ", ".join(values) for key, values in sorted(found.items())}


def _class_of(module: nn.Module) -> str:
    """Name a module's class, with PyTorch's own that it extends: `Linear`, or `Norm(BatchNorm2d)`."""
    own = type(module)
    known = next((kind for kind in own.__mro__ if kind.__module__.startswith("torch.nn.modules")), own)
    return own.__name__ if known in (own, nn.Module) else f"{own.__name__}({known.__name__})"


def _has_modes(module: nn.Module) -> bool:
    """Tell whether a module computes something else in training than in evaluation."""
    if isinstance(module, _Dropout):
        return module.p > 0
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.running_mean is not None  # without it a batch is normalised by itself in both
    return isinstance(module, nn.RReLU)


def settings_by_parameter(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the optimizer's numeric settings by name, for each parameter: float64 [P]; `betas` as `betas.0`, ..."""
    position = {id(parameter): index for index, parameter in enumerate(parameters)}
    settings: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        held = [position[id(p)] for p in group["params"] if id(p) in position]
        for key, value in _options(optimizer, group).items():
            parts = value if isinstance(value, tuple | list) else (value,)
            for index, part in enumerate(parts):
                if isinstance(part, bool | int | float) or (isinstance(part, Tensor) and part.numel() == 1):
                    name = f"{key}.{index}" if isinstance(value, tuple | list) else key
                    empty = torch.zeros(len(parameters), dtype=torch.float64)
                    settings.setdefault(name, empty)[held] = float(part)
    return settings


_NOTES = {"params", "initial_lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum"}
"""What a group of parameters holds beside its optimizer's options: the parameters, and what schedulers note there."""


def _options(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
    """Return a group's options: what the optimizer has a default for, or all where it has none, as Muon with Adam.

    The group of a sharded optimizer, as one that was added later, may lack some: of these its own defaults hold.
    """
    inside = own_part(optimizer).defaults
    known = optimizer.defaults.keys() | inside.keys()
    known = known | {"lr"} if known else group.keys() - _NOTES
    return {key: value for key, value in (inside | group).items() if key in known}


def state_kept(parameters: Sequence[Tensor], states: Sequence[dict[str, Any]]) -> Tensor:
    """Return what an optimizer keeps of each parameter in the parameter's shape: float32 [3, P].

    The first row is the L2 norm of all of it, the second how many tensors that are, the third how many are all zeros.
    """
    held = [
        (place, value)
        for place, (parameter, state) in enumerate(zip(parameters, states, strict=True))
        for value in state.values()
        if isinstance(value, Tensor) and value.shape == parameter.shape and value.ndim
    ]
    lengths = norms(value for _, value in held)
    each = torch.stack([lengths.square(), torch.ones_like(lengths), (lengths == 0).double()])
    places = torch.tensor([place for place, _ in held], dtype=torch.int64)
    kept = torch.zeros(3, len(parameters), dtype=torch.float64).index_add_(1, places, each)
    kept[0].sqrt_()
    return kept.float()


def steps_counted(states: Sequence[dict[str, Any]]) -> Tensor:
    """Return the steps that an optimizer's state counts of each parameter: float64 [P]; 0 where it counts none."""
    counted = dict(enumerate(state.get("step") for state in states))
    tensors = {place: one for place, one in counted.items() if isinstance(one, Tensor) and one.numel() == 1}
    exact = on_cpu([where_float64_is(one).double().reshape(()) for one in tensors.values()])
    numbers = {place: float(one) for place, one in counted.items() if isinstance(one, int | float)}
    found = torch.zeros(len(states), dtype=torch.float64)
    for place, one in (numbers | dict(zip(tensors, map(float, exact), strict=True))).items():
        found[place] = one
    return found
