import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.workloads import SampleRandomness


def draw(samples: list[int], seed: int = 0, epoch: int = 0) -> torch.Tensor:
    return SampleRandomness(seed, epoch, torch.tensor(samples)).normal(5)


@given(st.permutations(range(12)), st.integers(1, 11))
def test_a_samples_numbers_do_not_depend_on_order_or_on_how_the_batch_is_cut(order: list[int], cut: int) -> None:
    whole = draw(list(range(12)))
    pieces = torch.cat([draw(order[:cut]), draw(order[cut:])])
    assert torch.equal(pieces, whole[order])


def test_seed_epoch_sample_and_draw_each_give_other_numbers() -> None:
    randomness = SampleRandomness(0, 0, torch.tensor([3]))
    first, second = randomness.normal(5), randomness.normal(5)
    variants = [first, second, draw([4]), draw([3], seed=1), draw([3], epoch=1)]
    assert len({tuple(v.flatten().tolist()) for v in variants}) == len(variants)
    assert torch.equal(first, draw([3]))


def test_numbers_have_the_asked_distribution() -> None:
    randomness = SampleRandomness(0, 0, torch.arange(4000))
    normal, uniform, integers = randomness.normal(5), randomness.uniform(5), randomness.integers(0, 10, 5)
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    assert set(integers.unique().tolist()) == set(range(10))
    # Neighbouring samples' numbers are uncorrelated.
    assert abs(torch.corrcoef(torch.stack([normal[:-1].flatten(), normal[1:].flatten()]))[0, 1]) < 0.03
