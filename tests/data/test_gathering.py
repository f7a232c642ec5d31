"""Small batches are gathered together; nobody may notice."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainparity.data.loader import micro_batches
from trainparity.data.manifest import Manifest
from trainparity.data.prepared import Prepared
from trainparity.params import Loader

SAMPLES = 97


def dataset(columns: int) -> Prepared:
    """Return a dataset of rows of 1, 4 x columns and 8 bytes."""
    manifest = Manifest(dataset="test", samples=SAMPLES, tensors={}, files={}, source="test", real=False)
    images = torch.arange(SAMPLES * columns, dtype=torch.float32).reshape(SAMPLES, columns)
    return Prepared(manifest, {"images": images, "flags": images[:, 0] > 40, "labels": torch.arange(SAMPLES)})


PLAN = st.lists(st.lists(st.integers(0, SAMPLES - 1), min_size=1, max_size=40), min_size=1, max_size=12)


@given(PLAN, st.sampled_from([1, 7, 16, 5000]))
def test_every_batch_is_the_one_sliced_alone_and_lies_as_it_would(plan: list[list[int]], columns: int) -> None:
    data, indices = dataset(columns), [torch.tensor(samples) for samples in plan]
    found = list(micro_batches(data, indices, Loader(), failed=lambda error: None))
    assert len(found) == len(plan)
    for batch, samples in zip(found, indices, strict=True):
        alone = data.batch(samples)
        assert batch.keys() == alone.keys()
        for name, tensor in batch.items():
            assert torch.equal(tensor, alone[name]) and tensor.dtype == alone[name].dtype
            assert tensor.is_contiguous() and tensor.data_ptr() % 64 == 0


def test_small_batches_are_read_a_few_times_and_large_ones_one_by_one() -> None:
    assert reads(columns=4) == 1
    assert reads(columns=50_000) == 20


def reads(columns: int) -> int:
    counted: list[int] = []

    class Counting(Prepared):
        def batch(self, indices: Tensor) -> dict[str, Tensor]:
            counted.append(len(indices))
            return super().batch(indices)

    whole = dataset(columns)
    plan = [torch.arange(8) for _ in range(20)]
    assert len(list(micro_batches(Counting(whole.manifest, whole.tensors), plan, Loader(), lambda error: None))) == 20
    return len(counted)
