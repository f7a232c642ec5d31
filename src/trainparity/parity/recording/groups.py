"""Ranks that train one replica of a model together, as in tensor parallelism: those of a group see the same samples."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from trainparity.parity.recording import ranks
from trainparity.parity.recording.kinds import is_dtensor, is_fsdp

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def groups(model: nn.Module) -> Tensor:
    """Return the first rank of each rank's group: int64 [R], on every rank. Every rank must call it.

    A dimension of a device mesh makes groups if it cuts parameters and is not one that FSDP spreads the samples over.
    """
    own = [_first(mesh, dimensions) for mesh, dimensions in _cutting(model).items()]
    return ranks.gather(torch.tensor(min(own, default=ranks.rank())))


def is_cut(model: nn.Module) -> bool:
    """Tell whether ranks train a replica together: what a module of it returns may then be a part of a tensor."""
    return any(_cutting(model).values())


def part(tensor: "DTensor") -> int:
    """Return which part of a tensor this rank holds, as a number; ranks that hold copies of it have the same."""
    number = 0
    coordinates = tensor.device_mesh.get_coordinate() or ()
    for size, place, placement in zip(tensor.device_mesh.shape, coordinates, tensor.placements, strict=False):
        number = number * size + (0 if placement.is_replicate() else place)
    return number


def _first(mesh: DeviceMesh, dimensions: set[int]) -> int:
    """Return the first of the ranks that differ from this one in no other coordinate than these."""
    coordinates = mesh.get_coordinate()
    if coordinates is None:  # the mesh is other ranks'
        return ranks.rank()
    return int(mesh.mesh[tuple(0 if i in dimensions else place for i, place in enumerate(coordinates))])


def _cutting(model: nn.Module) -> dict[DeviceMesh, set[int]]:
    """Return the dimensions of each mesh that cut a replica's parameters."""
    spread = {
        members for mesh in _fsdp_meshes(model) for members in map(_members, [mesh] * mesh.ndim, range(mesh.ndim))
    }
    cutting: dict[DeviceMesh, set[int]] = {}
    for parameter in model.parameters():
        if is_dtensor(parameter):
            mesh = parameter.device_mesh
            cut = {i for i, placement in enumerate(parameter.placements) if not placement.is_replicate()}
            cutting.setdefault(mesh, set()).update(i for i in cut if _members(mesh, i) not in spread)
    return cutting


def _fsdp_meshes(model: nn.Module) -> Iterator[DeviceMesh]:
    for module in model.modules():
        if is_fsdp(module) and (parameters := module._get_fsdp_state()._fsdp_param_group):
            yield parameters.mesh_info.mesh


def _members(mesh: DeviceMesh, dimension: int) -> tuple[int, ...]:
    """Return the ranks that differ from this one in one coordinate."""
    return tuple(sorted(dist.get_process_group_ranks(mesh.get_group(dimension))))
