import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.strategies import Execution
from trainparity.strategies.base import Strategy
from trainparity.training.sampler import Sampler

sizes = st.integers(1, 50)


def sampler(num_samples: int, batch: int, **settings: int) -> Sampler:
    return Sampler(num_samples=num_samples, global_batch_size=batch, **{"seed": 0, "shuffle": True, **settings})


@given(sizes, sizes, st.integers(0, 3))
def test_an_epoch_visits_every_sample_once(num_samples: int, batch: int, epoch: int) -> None:
    s = sampler(num_samples, batch)
    steps = range(epoch * s.steps_per_epoch, (epoch + 1) * s.steps_per_epoch)
    visited = torch.cat([s.global_batch(step) for step in steps])
    assert sorted(visited.tolist()) == list(range(num_samples))
    assert {s.epoch(step) for step in steps} == {epoch}


@given(sizes, sizes, st.integers(1, 4))
def test_ranks_shards_are_a_strided_partition_of_the_global_batch(num_samples: int, batch: int, world: int) -> None:
    whole = sampler(num_samples, batch).global_batch(0)
    device = torch.device("cpu")
    ranks = [Strategy(Execution(device=device, rank=r, world_size=world)).shard(whole) for r in range(world)]
    assert sorted(torch.cat(ranks).tolist()) == sorted(whole.tolist())
    assert ranks[0].tolist() == whole.tolist()[::world]


def test_epochs_seeds_and_twins_have_their_own_order() -> None:
    s = sampler(100, 20)
    assert s.global_batch(0).tolist() != s.global_batch(s.steps_per_epoch).tolist()
    assert s.global_batch(0).tolist() != sampler(100, 20, seed=1).global_batch(0).tolist()
    twin = sampler(100, 20, order=1).global_batch(0)
    assert twin.tolist() != s.global_batch(0).tolist()
    assert sorted(twin.tolist()) == sorted(s.global_batch(0).tolist())


def test_without_shuffling_samples_come_in_the_datasets_order() -> None:
    assert sampler(10, 4, shuffle=False).global_batch(1).tolist() == [4, 5, 6, 7]
