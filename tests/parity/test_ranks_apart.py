"""Ranks that do not hold the same parameters: which ones is said."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

import trainparity
from tests.support.on_ranks import on_ranks
from trainparity.parity.compare import compare_folders
from trainparity.parity.recording.trace import Trace

NAMES = ("ddp", "head-ignored", "head-apart", "late", "no-wrapper")


def train(rank: int, folder: str) -> Tensor:
    for name in NAMES:
        torch.manual_seed(0)
        data = torch.randn(4, 16, 6)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        if name == "head-ignored":  # a model of its own whose gradients nobody averages
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["2.weight", "2.bias"])
        called = model if name == "no-wrapper" else DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
        with trainparity.record(called, optimizer, f"{folder}/{name}"):
            for step, batch in enumerate(data):
                optimizer.zero_grad()
                called(batch[rank::2]).square().mean().backward()
                optimizer.step()
                if name == "head-apart" or (name == "late" and step == 1):
                    with torch.no_grad():
                        model[2].bias += rank
    return torch.zeros(1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("apart")
    on_ranks(2, folder, train, str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "held", "gradients"),
    [
        ("head-ignored", "(2.weight, 2.bias: 2 of 4) after step 0", "not all-reduced (2.weight, 2.bias: 2 of 4)"),
        ("no-wrapper", "(all 4) after step 0", "not all-reduced (all 4)"),
        ("head-apart", "(2.bias: 1 of 4) after step 1", "gradients agree, weights do not"),
        ("late", "(2.bias: 1 of 4) after step 2", "gradients agree, weights do not"),
    ],
)
def test_the_parameters_that_ranks_hold_apart_are_named(runs: Path, name: str, held: str, gradients: str) -> None:
    found = compare_folders(runs / "ddp", runs / name)
    assert (found.verdict, found.cause, found.ranks_agree) == ("different", "ranks-disagree", False), found.reason
    assert held in str(found.explanation) and gradients in str(found.explanation), found.explanation


def test_where_ranks_agree_nothing_more_is_recorded(runs: Path) -> None:
    assert not {name for name in Trace.load(runs / "ddp").arrays if name.endswith("_apart")}
    apart = Trace.load(runs / "late").arrays["rank/weight_apart"]
    assert apart[1:3].tolist() == [[False] * 4, [False, False, False, True]]


def test_a_recording_that_does_not_tell_which_is_judged_as_before(runs: Path, tmp_path: Path) -> None:
    trace = Trace.load(runs / "head-ignored")
    Trace(trace.layout, {name: a for name, a in trace.arrays.items() if not name.endswith("_apart")}).save(tmp_path)
    found = compare_folders(runs / "ddp", tmp_path)
    assert "different parameters after step 0: gradients are not all-reduced, or only" in str(found.explanation)


class OwnShard(nn.Module):
    """A layer of which each rank holds a part of its own, as Megatron does, behind a normalisation that all hold."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        draws = torch.Generator().manual_seed(1 + rank)
        self.part = nn.Parameter(0.3 * torch.randn(6, 4, generator=draws))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = all_reduce(torch.tanh(self.norm(x) @ self.part))
        return made


def train_own_shards(rank: int, folder: str) -> Tensor:
    for name in SHARDED:
        torch.manual_seed(0)
        data = torch.randn(4, 16, 6)
        for twin in range(3 if name == "shards" else 1):
            torch.manual_seed(0)
            model = OwnShard(rank)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
            with trainparity.record(model, optimizer, f"{folder}/{name}", twin=twin):
                for batch in data:
                    optimizer.zero_grad()
                    parts = batch.chunk(2 if name == "cut" else 1)
                    for some in parts:
                        (model(some).square().mean() / len(parts)).backward()
                    for parameter in model.norm.parameters():
                        dist.all_reduce(parameter.grad)
                        parameter.grad *= 0.9 if name == "one-rank-shortens" and rank == 1 else 1.0
                    optimizer.step()
    return torch.zeros(1)


SHARDED = ("shards", "cut", "one-rank-shortens")


def test_what_ranks_hold_alike_in_one_run_alone_is_named_beside_shards_of_their_own(tmp_path: Path) -> None:
    on_ranks(2, tmp_path, train_own_shards, str(tmp_path))
    assert compare_folders(tmp_path / "shards", tmp_path / "cut").verdict == "equivalent"
    found = compare_folders(tmp_path / "shards", tmp_path / "one-rank-shortens")
    assert (found.verdict, found.cause) == ("different", "ranks-disagree"), found.reason
    assert "(norm.weight, norm.bias: 2 of 3) after step 0" in str(found.explanation)
