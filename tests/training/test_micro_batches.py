import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.strategies import Execution, Strategy
from trainparity.training.micro_batches import MicroBatchPlan
from trainparity.training.sampler import Sampler


def plans(samples: int, batch: int, ranks: int, parts: int, steps: int) -> list[MicroBatchPlan]:
    sampler = Sampler(num_samples=samples, global_batch_size=batch, seed=3, shuffle=True)
    cpu = torch.device("cpu")
    strategies = [Strategy(Execution(device=cpu, rank=rank, world_size=ranks)) for rank in range(ranks)]
    return [MicroBatchPlan(sampler, strategy, parts, 0, steps) for strategy in strategies]


@given(st.integers(12, 40), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.integers(1, 8))
def test_ranks_and_micro_batches_make_up_each_global_batch(
    samples: int, batch: int, ranks: int, parts: int, steps: int
) -> None:
    sampler = Sampler(num_samples=samples, global_batch_size=batch, seed=3, shuffle=True)
    seen: dict[int, list[int]] = {step: [] for step in range(steps)}
    for plan in plans(samples, batch, ranks, parts, steps):
        assert len(plan) == steps * parts == len(plan[:])
        for step in range(steps):
            counted = plan.counted(step)
            for part in range(parts):
                micro_batch = plan[step * parts + part]
                assert len(micro_batch) > 0
                if counted[part]:
                    seen[step] += micro_batch.tolist()
    for step in range(steps):
        assert sorted(seen[step]) == sorted(sampler.global_batch(step).tolist())
        assert len(seen[step]) == sampler.batch_size(step)


def test_a_plan_of_many_steps_costs_nothing_until_it_is_read() -> None:
    plan = plans(60_000, 64, 2, 2, steps=10**12)[0]
    assert len(plan) == 2 * 10**12
    assert len(plan[10**12]) == 16
    with pytest.raises(IndexError):
        plan[2 * 10**12]
