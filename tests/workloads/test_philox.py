"""What is drawn for many samples at once is what NumPy's generators give for each of them alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.workloads import SampleRandomness, philox

LARGE = st.integers(0, 2**64 - 1)


@given(
    LARGE, LARGE, st.integers(1, 1000), st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5), st.integers(1, 40)
)
def test_words_are_those_of_numpy(seed: int, epoch: int, draw: int, samples: list[int], count: int) -> None:
    key = np.array([seed, epoch], dtype=np.uint64)
    found = philox.words(key, draw, np.array(samples, dtype=np.uint64), count)
    for sample, row in zip(samples, found, strict=True):
        plain = np.random.Philox(key=key, counter=np.array([0, 0, draw, sample], dtype=np.uint64))
        halves = [half for word in plain.random_raw(count) for half in (int(word) & 0xFFFFFFFF, int(word) >> 32)]
        assert row.tolist() == halves[:count]


def alone(seed: int, epoch: int, draw: int, sample: int) -> np.random.Generator:
    """Return the generator of one sample's draw."""
    key, counter = np.array([seed, epoch], dtype=np.uint64), np.array([0, 0, draw, sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


@pytest.mark.parametrize("choices", [1, 2, 9, 10, 1000, 3 * 2**30, 2**32 - 1, 2**32, 2**40])
def test_integers_are_those_of_numpy(choices: int) -> None:
    """Of 3 * 2**30 choices a quarter of all words is drawn again."""
    randomness, samples = SampleRandomness(7, 3, torch.arange(50)), range(50)
    for draw, shape in ((1, ()), (2, (2,)), (3, (3, 5)), (4, (70,))):
        expected = [alone(7, 3, draw, sample).integers(-4, choices - 4, shape) for sample in samples]
        assert torch.equal(randomness.integers(-4, choices - 4, *shape), torch.from_numpy(np.stack(expected)))


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (65,)])
def test_uniform_numbers_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    randomness = SampleRandomness(1, 0, torch.tensor([5, 0, 2**40]))
    expected = [alone(1, 0, 1, sample).random(shape, dtype=np.float32) for sample in (5, 0, 2**40)]
    assert torch.equal(randomness.uniform(*shape), torch.from_numpy(np.stack(expected)))
