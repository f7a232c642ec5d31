"""Channels last: the values of all channels of a pixel lie side by side in memory (NHWC), as many kernels want them.

Source: https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html. No value changes. Sums of a
convolution may be taken in another order.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map


def channels_last(model: nn.Module) -> None:
    """Lay out a model's 4-D parameters and buffers as NHWC, in place, and its 4-D inputs when it is called."""
    model.to(memory_format=torch.channels_last)

    def lay_out(module: nn.Module, inputs: Any, keywords: Any) -> Any:
        return tree_map(_laid_out, (inputs, keywords))

    model.register_forward_pre_hook(lay_out, with_kwargs=True)


def _laid_out(value: object) -> object:
    if isinstance(value, Tensor) and value.dim() == 4:
        return value.contiguous(memory_format=torch.channels_last)
    return value
