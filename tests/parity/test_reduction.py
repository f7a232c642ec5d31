"""Ranks that sum the gradients of some parameters, or of all, where they should average them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import trainparity
from tests.support.on_ranks import on_ranks
from trainparity.parity.compare import compare_folders


def _train(rank: int, folder: str, coarse: bool, summed: str) -> Tensor:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2,))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if coarse else MixedPrecisionPolicy()
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    inner = fully_shard(model[2], mesh=mesh, mp_policy=policy)
    whole = fully_shard(model, mesh=mesh, mp_policy=policy)
    for part in (inner, whole):
        part.set_force_sum_reduction_for_comms(True)  # gloo has no sum that multiplies first
    for part in {"": [], "inner": [inner], "all": [inner, whole]}[summed]:
        part.set_gradient_divide_factor(1.0)
    optimizer, draws = torch.optim.Adam(model.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder):
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.randn(16, 8, generator=draws).chunk(2)[rank]
            (model(batch).float() - 1).square().mean().backward()
            optimizer.step()
    return torch.zeros(())


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("summed", ["", "inner", "all"])
def test_the_number_of_ranks_is_named(summed: str, coarse: bool, tmp_path: Path) -> None:
    for name, how in (("a", ""), ("b", summed)):
        (tmp_path / name).mkdir()
        on_ranks(2, tmp_path / name, _train, str(tmp_path / name / "run"), coarse, how)
    found = compare_folders(tmp_path / "a" / "run", tmp_path / "b" / "run")
    assert found.cause == ("loss-normalisation" if summed else None), found.explanation
    assert found.verdict == ("different" if summed else "bitwise")
    assert not summed or "the number of ranks" in str(found.explanation)


def _train_changed(rank: int, folder: str, changed: str) -> Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=1e-2), torch.Generator().manual_seed(1)
    with trainparity.record(wrapped, optimizer, folder):
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.randn(16, 8, generator=draws).chunk(2)[rank]
            (wrapped(batch) - 1).square().mean().backward()
            for name, parameter in model.named_parameters():
                assert parameter.grad is not None
                parameter.grad *= 2.0 if changed in (name, "all") else 1.0
            optimizer.step()
    return torch.zeros(())


@pytest.mark.parametrize(("changed", "cause"), [("0.weight", "backward"), ("all", "loss-normalisation")])
def test_one_parameter_s_gradient_that_is_doubled_is_no_sum_over_ranks(
    changed: str, cause: str, tmp_path: Path
) -> None:
    for name, which in (("a", ""), ("b", changed)):
        (tmp_path / name).mkdir()
        on_ranks(2, tmp_path / name, _train_changed, str(tmp_path / name / "run"), which)
    found = compare_folders(tmp_path / "a" / "run", tmp_path / "b" / "run")
    assert (found.verdict, found.cause) == ("different", cause), found.explanation
