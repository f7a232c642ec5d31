"""The algorithm of `nn.DataParallel` without GPUs."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten


class CpuReplicas(nn.Module):
    """The algorithm of `nn.DataParallel` over replicas on the CPU, where PyTorch's own passes through.

    Scatter the inputs in contiguous chunks, broadcast parameters and buffers, run every replica, gather the
    outputs; the backward pass adds the replicas' gradients on the master. Replicas run one after another, so parity
    is real and time is not. As in `nn.DataParallel`, only the first replica's buffers are kept.
    """

    def __init__(self, module: nn.Module, num_replicas: int) -> None:
        super().__init__()
        self.module = module
        self.num_replicas = num_replicas

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the module on chunks of all tensors [B, ...] in its inputs; return its outputs concatenated."""
        leaves, structure = tree_flatten((inputs, keywords))
        size = next(len(leaf) for leaf in leaves if isinstance(leaf, Tensor))
        count = min(self.num_replicas, size)
        scattered = [leaf.chunk(count) if isinstance(leaf, Tensor) else [leaf] * count for leaf in leaves]
        # Chunks of 3 samples over 4 replicas, say, may be fewer than the replicas.
        outputs = [
            self._replica(index, *tree_unflatten(list(chunk), structure))
            for index, chunk in enumerate(zip(*scattered, strict=False))
        ]
        return tree_map(lambda *parts: torch.cat(parts), *outputs)

    def _replica(self, index: int, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        # A clone's backward adds to the master's gradient, as DataParallel's broadcast does.
        state = {name: parameter.clone() for name, parameter in self.module.named_parameters()}
        for name, buffer in self.module.named_buffers():
            state[name] = buffer if index == 0 else buffer.clone()
        return functional_call(self.module, state, inputs, keywords)
