"""Tensors measured together: each as it is alone, in its place."""

import warnings
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainparity.parity.recording import stacks
from trainparity.parity.recording.later import Later
from trainparity.parity.recording.sketch import LEVELS, Sketcher, digest, levels, norm

SKETCH = Sketcher(64)
LONG = 40_000
"""Numbers of a tensor that is measured alone."""


def random(size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    numbers = 50 * torch.randn(size, generator=torch.Generator().manual_seed(size))
    numbers[numbers.abs() < 5] = 0
    return numbers.to(dtype)


def measured(tensors: list[Tensor | None]) -> list[Tensor]:
    return stacks.measured(tensors, stacks.digests, stacks.norms, stacks.sketches(SKETCH), stacks.levels)


def check(tensors: list[Tensor | None]) -> None:
    digests, norms, sketches, of_levels = measured(tensors)
    assert len(digests) == len(norms) == len(sketches) == len(of_levels) == len(tensors)
    for place, tensor in enumerate(tensors):
        if tensor is None:
            assert not any(values[place].any() for values in (digests, norms, sketches, of_levels))
            continue
        assert digests[place] == digest(tensor)
        assert norms[place] == pytest.approx(norm(tensor), rel=1e-14)
        assert torch.allclose(sketches[place], SKETCH(tensor), rtol=1e-13, atol=1e-9)
        assert torch.allclose(of_levels[place], levels(tensor), atol=1.01 / max(1, tensor.numel()))


SIZES = st.lists(st.one_of(st.none(), st.integers(0, 300), st.just(LONG)), max_size=12)


@given(SIZES)
def test_each_is_measured_as_it_is_alone_in_its_place(sizes: list[int | None]) -> None:
    check([None if size is None else random(size) for size in sizes])


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.int32, torch.bool]
)
def test_of_other_formats(dtype: torch.dtype) -> None:
    check([random(3, dtype), random(3), None, random(100, dtype), random(70, dtype), random(LONG, dtype)])


def test_complex_sparse_and_turned_ones_and_those_without_numbers() -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 1, 3]]), torch.ones(3, 4), (6, 4))
    turned = random(60).view(6, 10).T
    check([random(8).to(torch.complex64), sparse, turned, turned[:, 0], torch.empty(8, device="meta"), torch.ones(())])


def test_what_is_not_finite_stays_in_its_row() -> None:
    _, norms, sketches, of_levels = measured([random(9), torch.tensor([1.0, torch.nan]), random(12)])
    assert norms.isnan().tolist() == [False, True, False]
    assert sketches.isnan().any(1).tolist() == [False, True, False]
    assert of_levels.isfinite().all() and of_levels[2].any()


def test_no_more_are_held_than_are_measured_together() -> None:
    held = 0

    def tensors() -> Iterator[Tensor]:
        nonlocal held
        for _ in range(300):
            held += 1
            assert held <= 1 << 5
            yield torch.ones(4096)

    def measure(stack: stacks.Stack) -> Tensor:
        nonlocal held
        held -= len(stack.places)
        return stacks.norms(stack)

    assert stacks.measured(tensors(), measure)[0].tolist() == [64.0] * 300
    assert held == 0


@given(SIZES)
def test_later_each_is_told_its_own(sizes: list[int | None]) -> None:
    later, found = Later(stacks.digests), {}
    tensors = [random(size) for size in sizes if size is not None]
    for place, tensor in enumerate(tensors):
        changed = tensor.clone()
        later.add(changed, partial(found.__setitem__, place), copied=True)
        changed.zero_()
    later.finish()
    assert {place: int(value) for place, value in found.items()} == dict(enumerate(map(digest, tensors)))
    told = len(found)
    later.add(torch.ones(3), partial(found.__setitem__, told))
    later.drop()
    later.finish()
    assert told not in found


def test_what_is_copied_together_keeps_its_bits_and_shapes() -> None:
    made = [torch.tensor([[1.5, torch.nan, -0.0]]).double(), torch.tensor([-1, 2**63 - 1]), torch.tensor(0.5).double()]
    made += [torch.zeros(0, 4, dtype=torch.float64), torch.arange(6).view(2, 3).T]
    for before, after in zip(made, stacks._apart(stacks._together(made), made), strict=True):
        assert after.dtype == before.dtype and after.shape == before.shape
        assert torch.equal(after.view(torch.int64), before.contiguous().view(torch.int64))


@pytest.mark.cuda
def test_a_gpu_is_waited_for_once() -> None:
    measures = stacks.digests, stacks.norms, stacks.sketches(SKETCH)
    tensors = [random(size) for size in (3, 300, LONG, 5000, 2 * LONG)]
    there = [tensor.cuda() for tensor in tensors]
    stacks.measured(there, *measures)  # signs and weights of places are made there
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            digests, norms, sketches = stacks.measured(there, *measures)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(said) == 1
    expected = stacks.measured(tensors, *measures)
    assert torch.equal(digests, expected[0])
    assert torch.allclose(norms, expected[1], rtol=1e-12) and torch.allclose(sketches, expected[2], atol=1e-9)


def test_what_stands_for_a_measure_has_its_shape() -> None:
    tensors = [random(3), None, random(LONG)]
    for measure in (stacks.norms, stacks.sketches(SKETCH), stacks.levels):
        (wanted,), (found,) = stacks.measured(tensors, measure), stacks.measured(tensors, stacks.zeros(measure))
        assert found.shape == wanted.shape and found.dtype == wanted.dtype and not found.any()
    assert stacks.measured([], stacks.levels)[0].shape == (0, LEVELS)


@pytest.mark.parametrize("others", [[], [random(3)], [random(100)]])
def test_what_has_no_memory_any_more_has_no_numbers(others: list[Tensor]) -> None:
    gone = torch.ones(100)
    stack = stacks.Stacks()
    for place, tensor in enumerate([gone, *others]):
        assert stack.add(place, tensor) is None
    gone.untyped_storage().resize_(0)
    (found,) = stack.take()
    assert found.places[0] == 0 and found.counts[0] == 0
    for measure in (stacks.digests, stacks.norms, stacks.levels, stacks.sketches(SKETCH)):
        assert not measure(found)[0].any()
        (measured,) = stacks.measured([gone, *others], measure)
        assert torch.equal(measured, measure(found))
