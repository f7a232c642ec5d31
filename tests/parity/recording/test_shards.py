"""Whole tensors of shards, on ranks that have unequal parts of them."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from tests.support.on_ranks import on_ranks
from trainparity.parity.recording import shards

WHOLE = [
    torch.arange(15, dtype=torch.float64).reshape(5, 3) / 7,  # two rows on ranks 0 and 1, one on rank 2
    torch.arange(7).to(torch.bfloat16),
    torch.arange(4 * 2 * 2).reshape(4, 2, 2),  # none on rank 2
    torch.tensor([[True, False]]),  # on rank 0 alone
    torch.arange(30.0).reshape(6, 5),
]


@pytest.mark.parametrize(("message", "messages"), [(1 << 24, 1), (140, 3), (1, 5)])
def test_what_travels_together_is_what_each_shard_is_part_of(tmp_path: Path, message: int, messages: int) -> None:
    """They have 120, 14, 128, 2 and 120 bytes."""
    counts = on_ranks(3, tmp_path, _messages_of_whole, message)
    assert [int(count) for count in counts] == [messages] * 3


def _messages_of_whole(rank: int, message: int) -> Tensor:
    shards._MESSAGE = message
    mesh, sent = init_device_mesh("cpu", (3,)), list[int]()
    spread = [distribute_tensor(tensor, mesh, [Shard(0)]) for tensor in WHOLE]
    gather = dist.all_gather_into_tensor
    dist.all_gather_into_tensor = lambda *args, **named: (sent.append(1), gather(*args, **named))
    try:
        found = list(shards.full_each(spread))
    finally:
        dist.all_gather_into_tensor = gather
    assert len(found) == len(WHOLE)
    for one, whole in zip(found, WHOLE, strict=True):
        assert one.dtype == whole.dtype and one.is_contiguous() and torch.equal(one, whole)
    return torch.tensor(len(sent))


def test_what_is_spread_in_another_way_and_what_is_whole_keep_their_places(tmp_path: Path) -> None:
    assert all(on_ranks(2, tmp_path, _all_kinds))


def _all_kinds(rank: int) -> Tensor:
    mesh, grid = init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (1, 2))
    whole = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    empty = torch.empty(0, 3)
    given: list[Tensor | None] = [
        distribute_tensor(whole, mesh, [Shard(0)]),
        None,
        whole,
        distribute_tensor(whole + 1, mesh, [Shard(1)]),
        distribute_tensor(whole + 2, mesh, [Replicate()]),
        distribute_tensor(whole + 3, mesh, [Shard(0)]).requires_grad_(),
        distribute_tensor(whole + 4, grid, [Shard(0), Shard(0)]),
        distribute_tensor(empty, mesh, [Shard(0)]),
        None,
    ]
    expected = [whole, None, whole, whole + 1, whole + 2, whole + 3, whole + 4, empty, None]
    found = list(shards.full_each(given))
    same = [
        one is other if other is None else one is not None and torch.equal(one, other)
        for one, other in zip(found, expected, strict=True)
    ]
    return torch.tensor(all(same))
