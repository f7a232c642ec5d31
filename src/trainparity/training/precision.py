"""Number formats: autocast, TF32 and the loss scale."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from trainparity.params import Precision

_AUTOCAST: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Run the forward pass in bf16 or fp16; parameters stay in fp32."""
    if precision not in _AUTOCAST:
        return nullcontext()
    context: AbstractContextManager[None] = torch.autocast(device.type, dtype=_AUTOCAST[precision])
    return context


def grad_scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Make the loss scaler. It keeps small gradients from becoming zero in fp16; in other formats it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def to_float64(model: nn.Module) -> None:
    """Make a model compute in float64; inputs of other floating-point formats are converted."""
    model.double()

    def widen(module: nn.Module, inputs: Any, keywords: Any) -> Any:
        return tree_map(_widened, (inputs, keywords))

    model.register_forward_pre_hook(widen, with_kwargs=True)


def _widened(value: object) -> object:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def without_dropout(model: nn.Module) -> None:
    """Set the probability of every dropout layer to zero."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):  # calls a function for it, not a layer
            module.dropout = 0.0


@contextmanager
def tensor_cores(precision: Precision) -> Iterator[None]:
    """Allow TF32 for `tf32` only, in products and convolutions: by default it is allowed in convolutions of fp32."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before


@contextmanager
def deterministic() -> Iterator[None]:
    """Use deterministic algorithms; an operation that has none warns and runs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
