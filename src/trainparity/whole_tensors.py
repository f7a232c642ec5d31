"""Whole tensors of those that are spread over ranks. Everything here is a collective: call it on every rank."""

from typing import TYPE_CHECKING

import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def whole(tensor: "DTensor") -> Tensor:
    """Return the whole of a sharded tensor: on its own device, or on the CPU where `by_host` says so."""
    kept: DTensor = tensor.to("cpu") if by_host(tensor.device_mesh) else tensor  # type: ignore[assignment]
    found: Tensor = kept.full_tensor()
    return found


def by_host(mesh: "DeviceMesh") -> bool:
    """Tell whether gloo moves the tensors of a mesh of GPUs, as of two ranks that share one.

    Its functional all-gather reads a GPU's addresses as the host's, and SIGSEGV ends the process
    (https://github.com/pytorch/pytorch/issues/132471): such tensors are made whole in host memory.
    """
    groups = mesh.get_all_groups() if mesh.device_type == "cuda" else []
    return any("cuda:gloo" in str(dist.get_backend_config(group)) for group in groups)
