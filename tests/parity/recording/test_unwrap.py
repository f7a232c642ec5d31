"""The plain model and its parameters, whatever wraps them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from trainparity.parity.recording.facts import settings_by_parameter
from trainparity.parity.recording.joint import joined
from trainparity.parity.recording.unwrap import reshard, unwrap_model, unwrap_optimizer


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_after_an_evaluation_a_model_holds_what_its_optimizer_holds(mesh: DeviceMesh) -> None:
    model = nn.Sequential(fully_shard(nn.Linear(2, 2), mesh=mesh), nn.Linear(2, 1))
    fully_shard(model, mesh=mesh)
    held = list(model.parameters())
    with torch.no_grad():
        model(torch.ones(1, 2))
    assert any(one is not other for one, other in zip(model.parameters(), held, strict=True))
    reshard(model)
    assert all(one is other for one, other in zip(model.parameters(), held, strict=True))


def test_of_a_list_of_models_each_is_what_it_is_without_its_wrapper(mesh: DeviceMesh) -> None:
    """As of one under DDP beside its average, which a run on one device records without it."""
    model, average = nn.Linear(2, 2), nn.Linear(2, 2)
    plain = nn.ModuleList([model, average])
    assert list(unwrap_model(nn.ModuleList([DistributedDataParallel(model), average]))) == [model, average]
    assert unwrap_model(plain) is plain


def test_an_optimizer_without_hooks_of_its_own_is_the_one_inside(mesh: DeviceMesh) -> None:
    inside = torch.optim.SGD(nn.Linear(2, 1).parameters())
    outside = PostLocalSGDOptimizer(inside, PeriodicModelAverager(period=4, warmup_steps=100))
    assert unwrap_optimizer(outside) is inside


def test_the_options_of_a_sharded_optimizers_groups_are_those_of_the_one_inside(mesh: DeviceMesh) -> None:
    """It knows of defaults those alone that it was given."""
    model = nn.Linear(2, 1)
    groups: list[dict[str, object]] = [
        {"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}
    ]  # fmt: skip
    sharded = ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, lr=1e-3)
    found = settings_by_parameter(sharded, list(model.parameters()))
    assert found["weight_decay"].tolist() == [0.1, 0.0]


def test_a_group_that_a_sharded_optimizer_got_later_has_the_options_of_the_one_inside(mesh: DeviceMesh) -> None:
    """Its own group lacks them; those of the others it was given."""
    model = nn.Linear(2, 1)
    sharded = ZeroRedundancyOptimizer([model.weight], optimizer_class=torch.optim.AdamW, lr=1e-3, eps=1e-6)
    sharded.add_param_group({"params": [model.bias], "weight_decay": 0.0})
    found = settings_by_parameter(sharded, list(model.parameters()))
    assert found["eps"].tolist() == [1e-6, 1e-6] and found["betas.1"].tolist() == [0.999, 0.999]


class Unfinished(torch.optim.Optimizer):
    """Leaves out what `torch.optim.Optimizer.__init__` does, as some that wrap another do."""

    def __init__(self, inner: torch.optim.Optimizer | None, groups: list[dict[str, Any]]) -> None:
        self.base_optimizer, self.param_groups = inner, groups


def test_an_optimizer_without_hooks_is_seen_through_or_refused() -> None:
    inner = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    assert unwrap_optimizer(Unfinished(inner, inner.param_groups)) is inner
    with pytest.raises(TypeError, match="Unfinished never called"):
        unwrap_optimizer(Unfinished(None, inner.param_groups))


class Both(torch.optim.Optimizer):
    """Makes the steps of two, as of Muon and of Adam for the rest, and leaves out `torch.optim.Optimizer.__init__`."""

    def __init__(self, one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
        self.each, self.param_groups = [one, other], one.param_groups + other.param_groups


def test_a_wrapper_of_two_optimizers_is_recorded_as_both() -> None:
    layers = nn.Linear(2, 2), nn.Linear(2, 2)
    one, other = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers)
    assert joined(Both(one, other)).members == [one, other]
    assert joined([Both(one, other)]).members == [one, other]
    assert joined(one) is one
    assert joined(SimpleNamespace(one=one, other=other)).members == [one, other]
