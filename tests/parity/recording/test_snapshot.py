"""The arrays of a step: what is recorded of tensors, and what stands for one that is missing."""

import torch

from trainparity.parity.recording.sketch import LEVELS, Sketcher
from trainparity.parity.recording.snapshot import GRADIENT, Snapshot, norms


def test_a_missing_tensor_counts_as_zero_and_has_its_place() -> None:
    given = torch.tensor([3.0, 4.0])
    arrays = Snapshot(Sketcher(8))
    arrays.record("weight", [None, given])
    assert arrays["weight/norm"].tolist() == [0.0, 5.0]
    assert arrays["weight/digest"][0] == 0 != arrays["weight/digest"][1]
    assert torch.equal(arrays["weight/sketch"], torch.stack([torch.zeros(8, dtype=torch.float64), Sketcher(8)(given)]))


def test_the_hash_over_all_tells_apart_what_differs_in_one_bit_or_in_order() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 2**-22])
    hashes = [Snapshot(Sketcher(8)).record("weight", tensors) for tensors in ([one, one], [one, other], [other, one])]
    assert len(set(hashes)) == 3
    assert Snapshot(Sketcher(8)).record("buffer", [one, one.clone()]) == hashes[0]


def test_gradients_alone_have_levels() -> None:
    arrays = Snapshot(Sketcher(8))
    arrays.record("weight", [torch.ones(3)])
    assert "gradient/levels" not in arrays
    arrays.record(GRADIENT, [torch.ones(3), None])
    assert arrays["gradient/levels"].shape == (2, LEVELS)
    assert arrays["gradient/levels"][1].tolist() == [0.0] * LEVELS


def test_norms_are_of_whole_tensors() -> None:
    assert norms([torch.full((2, 2), 2.0), None]).tolist() == [4.0, 0.0]
