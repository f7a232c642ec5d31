"""`GlobalBatchSampler`: the global batches do not depend on how they are cut."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

import trainparity
from trainparity import GlobalBatchSampler

worlds, parts = st.integers(1, 4), st.integers(1, 4)


def sampler(num_samples: int, batch: int, **settings: Any) -> GlobalBatchSampler:
    try:
        return GlobalBatchSampler(num_samples, batch, **settings)
    except ValueError:
        assume(False)
        raise


def steps(batches: GlobalBatchSampler, accumulation_steps: int) -> Iterator[list[list[int]]]:
    """Yield the micro-batches of each optimizer step, as a loop sees them."""
    return zip(*[iter(batches)] * accumulation_steps, strict=True)  # type: ignore[return-value]


@given(st.integers(1, 200), st.integers(1, 40), worlds, parts, st.booleans(), st.booleans(), st.integers(0, 3))
def test_ranks_and_micro_batches_together_hold_the_global_batch(
    num_samples: int, batch: int, world: int, micro: int, shuffle: bool, drop_last: bool, epoch: int
) -> None:
    settings = {"shuffle": shuffle, "drop_last": drop_last, "seed": 7}
    whole = sampler(num_samples, batch, **settings)
    ranks = [
        sampler(num_samples, batch, rank=r, world_size=world, accumulation_steps=micro, **settings)
        for r in range(world)
    ]
    for batches in (whole, *ranks):
        batches.set_epoch(epoch)
    expected = [batches for (batches,) in steps(whole, 1)]
    cut = list(zip(*(steps(batches, micro) for batches in ranks), strict=True))
    assert len(cut) == len(expected) == len(whole)
    seen = []
    for step, (want, by_rank) in enumerate(zip(expected, cut, strict=True)):
        assert sorted(want) == sorted(i for shard in by_rank for part in shard for i in part)
        assert want == whole.global_batch(step)
        for rank, shard in enumerate(by_rank):
            mine = want[rank::world]
            assert [list(part) for part in shard] == [mine[k::micro] for k in range(micro)]
            assert all(shard)
        assert ranks[0].global_count(step * micro) == len(want) == whole.global_count(step)
        seen += want
    assert len(set(seen)) == len(seen) == (num_samples // batch * batch if drop_last else num_samples)


@given(st.integers(8, 100), st.integers(8, 20), worlds, parts, st.data())
def test_resuming_is_exact_on_other_ranks_too(
    num_samples: int, batch: int, world: int, micro: int, data: st.DataObject
) -> None:
    whole = sampler(num_samples, batch, seed=3)
    epochs = [list(map(tuple, whole))]
    whole.set_epoch(1)
    epochs.append(list(map(tuple, whole)))
    done = data.draw(st.integers(0, whole.steps_per_epoch))
    before = sampler(num_samples, batch, seed=3, accumulation_steps=micro)
    iterator = steps(before, micro)
    for _ in range(done):
        next(iterator)
    state = json.loads(json.dumps(before.state_dict()))
    assert state == before.state_dict(done)
    rest = epochs[0][done:] or epochs[1]
    resumed = [sampler(num_samples, batch, seed=3, rank=r, world_size=world) for r in range(world)]
    for batches in resumed:
        batches.load_state_dict(state)
        batches.set_epoch(batches.epoch)  # as a loop over epochs does
    together = zip(*resumed, strict=True)
    assert [sorted(chain(*by_rank)) for by_rank in together] == [sorted(want) for want in rest]
    again = [sorted(chain(*by_rank)) for by_rank in zip(*resumed, strict=True)]
    assert again == [sorted(want) for want in epochs[resumed[0].epoch]]  # and then whole epochs


def test_the_pipelines_global_batches_are_the_same() -> None:
    from trainparity.training.sampler import Sampler

    ours = Sampler(num_samples=50, global_batch_size=16, seed=5, shuffle=True)
    batches = GlobalBatchSampler(50, 16, seed=5)
    for epoch in range(3):
        batches.set_epoch(epoch)
        first = epoch * ours.steps_per_epoch
        assert list(batches) == [ours.global_batch(first + step).tolist() for step in range(4)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_persistent_workers_follows_the_epoch(workers: int) -> None:
    data = TensorDataset(torch.arange(30))
    batches = GlobalBatchSampler(30, 8, rank=1, world_size=2, accumulation_steps=2, drop_last=True)
    loader = DataLoader(data, batch_sampler=batches, num_workers=workers, persistent_workers=workers > 0)
    assert len(loader) == 6
    orders = []
    for epoch in range(3):
        batches.set_epoch(epoch)
        orders.append([found.tolist() for (found,) in loader])
        assert orders[-1] == list(batches)
    assert orders[0] != orders[1] != orders[2]


def test_the_position_is_the_loops_where_workers_read_ahead() -> None:
    loader = DataLoader(TensorDataset(torch.arange(64)), batch_sampler=GlobalBatchSampler(64, 8), num_workers=2)
    batches = loader.batch_sampler
    assert isinstance(batches, GlobalBatchSampler)
    next(iter(loader))
    assert batches.state_dict()["step"] > 1
    resumed = GlobalBatchSampler(64, 8)
    resumed.load_state_dict(batches.state_dict(1))
    assert list(resumed) == list(GlobalBatchSampler(64, 8))[1:]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "world_size": 2}, "rank is 2; it must be from 0 to 1"),
        ({"accumulation_steps": 0}, "accumulation_steps is 0; it must be at least 1"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"seed": 2**63}, "seed is .*; it must be at least 0 and below 2"),
        ({"world_size": 4, "accumulation_steps": 3}, "the global batch has 8 samples; 4 ranks x 3 micro-batches need"),
        ({"world_size": 3}, "the last global batch has 2 samples; 3 ranks x 1 micro-batches need at least 3, or drop"),
    ],
)
def test_what_can_not_be_cut_is_said(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GlobalBatchSampler(10, 8, **arguments)


def test_a_state_of_other_batches_is_refused() -> None:
    state = GlobalBatchSampler(10, 5, seed=1).state_dict()
    with pytest.raises(ValueError, match=r"other global batches: seed 1 \(here 0\)"):
        GlobalBatchSampler(10, 5).load_state_dict(state)


def test_it_is_public() -> None:
    assert "GlobalBatchSampler" in trainparity.__all__
