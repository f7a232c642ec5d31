import torch

from tests.support.runs import CPU
from trainparity.parity.recording.seeds import derived_seed
from trainparity.strategies import Execution
from trainparity.training.randomness import seed_step


def drawn(step: int, rank: int, group_size: int = 1, seed: int = 3) -> list[float]:
    seed_step(seed, step, Execution(device=CPU, rank=rank, world_size=4, group_size=group_size))
    return [*torch.rand(3).tolist(), *torch.nn.functional.dropout(torch.ones(20)).tolist()]


def test_a_model_draws_as_after_manual_seed() -> None:
    found = drawn(step=5, rank=2)
    torch.manual_seed(derived_seed(3, 5, 2))
    assert found == [*torch.rand(3).tolist(), *torch.nn.functional.dropout(torch.ones(20)).tolist()]


def test_steps_ranks_and_seeds_draw_apart_and_ranks_of_one_group_draw_alike() -> None:
    assert len({tuple(drawn(step, rank, seed=seed)) for step in (0, 1) for rank in (0, 1, 2) for seed in (0, 1)}) == 12
    assert drawn(0, 2, group_size=2) == drawn(0, 3, group_size=2) != drawn(0, 1, group_size=2)
