"""Clipping of the whole gradient, wherever its parts lie."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from trainparity.parity.recording.shards import full


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> None:
    """Scale all gradients down together, so that the L2 norm over all of them is at most `max_norm`.

    PyTorch's own function cannot mix gradients of several meshes, nor these and plain ones, as tensor parallelism
    leaves them: the norm over each mesh is made whole first.
    """
    gradients: dict[DeviceMesh | None, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            gradients.setdefault(_mesh(parameter.grad), []).append(parameter.grad)
    if len(gradients) < 2:
        nn.utils.clip_grad_norm_(parameters, max_norm)
        return
    norms = [full(nn.utils.get_total_norm(part)).to(part[0].device) for part in gradients.values()]
    # One by one: a foreach operation takes tensors of one mesh.
    nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.linalg.vector_norm(torch.stack(norms)), foreach=False)


def _mesh(gradient: Tensor) -> DeviceMesh | None:
    return gradient.device_mesh if isinstance(gradient, DTensor) else None
