"""Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", arXiv 1604.06174)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_in_backward(blocks: Sequence[nn.Module]) -> None:
    """Make each block keep only its inputs, and run its forward pass again in the backward pass.

    The method `forward` is replaced, not the module, so parameters keep their names. The second pass draws the same
    random numbers as the first, so the training is the same.
    """
    for block in blocks:
        block.forward = partial(_checkpointed, block.forward)


def _checkpointed(forward: Callable[..., Any], *inputs: Any, **keywords: Any) -> Any:
    return checkpoint(forward, *inputs, use_reentrant=False, **keywords)
