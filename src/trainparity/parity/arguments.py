"""What `trainparity.record` may be given: a mistake is said at the first step, not when the trace is written."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainparity.integers import integer
from trainparity.parity.recording.kinds import is_fsdp1
from trainparity.parity.recording.unwrap import unwrap_model


def check(model: object, settings: object, **numbers: tuple[object, int]) -> None:
    """Check arguments.

    Args:
        model: What the loop calls.
        settings: Facts of the loop.
        numbers: By the argument's name its value and the least that is allowed.

    Raises:
        TypeError: an argument is of another type.
        ValueError: a number is out of range, or the model has no parameters, or some without a shape.
    """
    if not isinstance(model, nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise TypeError(f"the model is {kind}; give a torch.nn.Module")
    if any(map(is_fsdp1, model.modules())):
        raise TypeError(
            "the model is, or holds, a FullyShardedDataParallel: FSDP's first version can't be recorded, as the flat "
            "parameters of its ranks are no parameters of the model; use torch.distributed.fsdp.fully_shard (FSDP2)"
        )
    if next(iter(model.parameters()), None) is None:
        raise ValueError(f"the model, a {type(model).__name__}, has no parameters: there is nothing to record")
    if isinstance(unwrap_model(model), torch.jit.ScriptModule):
        raise TypeError("the model is a ScriptModule, which takes no hooks; record the module it was made of")
    if lazy := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
        raise ValueError(f"{lazy[0]} has no shape yet; let a first batch pass through the model before it is recorded")
    for name, (value, least) in numbers.items():
        integer(name, value, least)
    _check_settings({} if settings is None else settings)


def _check_settings(settings: Any) -> None:
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings is a {type(settings).__name__}; give a dict")
    for name, value in settings.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool | None):
            raise TypeError(f"settings has {name!r}: {value!r}; allowed: texts, numbers, true, false and None by name")


def is_number(value: object) -> bool:
    """Tell whether a figure can be logged: a number of Python or NumPy, or a tensor of one."""
    return isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex())
