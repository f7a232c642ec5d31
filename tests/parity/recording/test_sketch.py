import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.parity.recording.sketch import LEVELS, Sketcher, digest, levels, norm, row_digests

SKETCH = Sketcher(64)


@given(st.integers(1, 64))
def test_small_tensors_are_measured_exactly(size: int) -> None:
    x = torch.randn(size, generator=torch.Generator().manual_seed(size))
    assert SKETCH(x).norm().item() == pytest.approx(norm(x), rel=1e-12)


def test_the_distance_of_large_tensors_is_estimated() -> None:
    generator = torch.Generator().manual_seed(0)
    sketch = Sketcher(64)
    ratios = []
    for _ in range(200):
        x = torch.randn(70, 37, generator=generator)
        y = x + 1e-6 * torch.randn(70, 37, generator=generator)
        ratios.append(((sketch(x) - sketch(y)).norm() / (x.double() - y.double()).norm()).item() ** 2)
    # Mean 1, deviation sqrt(2 / 64) = 0.18; the mean of 200 deviates by 0.0125.
    assert sum(ratios) / len(ratios) == pytest.approx(1, abs=0.05)
    assert min(ratios) > 0.4 and max(ratios) < 1.8


def test_chunks_of_a_very_large_tensor_count_apart() -> None:
    x = torch.zeros(3 << 20)
    x[5], x[5 + (1 << 20)], x[5 + (2 << 20)] = 3.0, 4.0, 12.0  # the same place of three chunks, one bucket
    parts = []
    for i in range(3):
        y = torch.zeros_like(x)
        y[5 + (i << 20)] = x[5 + (i << 20)]
        parts.append(Sketcher(64)(y))
    assert [p.norm().item() for p in parts] == [3.0, 4.0, 12.0]
    assert torch.equal(sum(parts), Sketcher(64)(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
@pytest.mark.parametrize("size", [64, 100])
def test_other_formats_are_projected_as_their_numbers(dtype: torch.dtype, size: int) -> None:
    x = (50 * torch.randn(200_001, generator=torch.Generator().manual_seed(0))).to(dtype)
    sketch = Sketcher(size)
    assert torch.equal(sketch(x), sketch(x.double()))
    if dtype == torch.int64:
        assert torch.equal(sketch(x + (1 << 40)), sketch((x + (1 << 40)).double()))  # float32 does not tell these apart


def test_the_number_of_threads_changes_nothing() -> None:
    x, threads = torch.randn(300_000, generator=torch.Generator().manual_seed(0)), torch.get_num_threads()
    try:
        found = []
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append((Sketcher(64)(x), levels(x), norm(x), digest(x)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2:] == found[1][2:]
    assert found[0][2] == pytest.approx(float(torch.linalg.vector_norm(x.double())), rel=1e-13)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_levels_count_which_part_is_how_small(numbers: list[float]) -> None:
    x = torch.tensor(numbers)
    scale = len(x) ** 0.5 / torch.linalg.vector_norm(x).double()
    relative = (x * scale.clamp(max=torch.finfo(torch.float32).max).float()).tolist()
    expected = [0] * LEVELS
    for number in relative:
        if abs(number) >= torch.finfo(torch.float32).tiny and math.isfinite(number):
            expected[min(max(-math.frexp(number)[1], 0) // 2, LEVELS - 1)] += 1
    assert levels(x).tolist() == [count / len(x) for count in expected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_a_digest_changes_with_any_one_element(dtype: torch.dtype) -> None:
    x = torch.ones(1000).to(dtype)
    seen = {digest(x)}
    for i in range(1000):
        y = x.clone()
        y[i] = 0
        seen.add(digest(y))
    assert len(seen) == 1001
    assert digest(x.clone()) == digest(x)


def test_a_digest_depends_on_the_order_and_sees_the_last_bit() -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert digest(x.flip(0)) != digest(x)
    y = x.clone()
    y[500] = torch.nextafter(y[500], torch.tensor(10.0))
    assert digest(y) != digest(x)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_are_measured_by_both_parts(dtype: torch.dtype) -> None:
    x = torch.randn(8, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    y = x.conj()
    assert norm(x) == norm(y) == pytest.approx(float(torch.linalg.vector_norm(x)), rel=1e-6)
    assert SKETCH(x - y).norm().item() == pytest.approx(float(2 * x.imag.norm()), rel=1e-6)
    assert digest(x) != digest(y)
    assert torch.equal(levels(x), levels(torch.view_as_real(x)))
    assert (row_digests(x) != row_digests(y)).all()


def test_a_meta_tensor_has_no_numbers() -> None:
    x = torch.empty(8, 3, device="meta")
    assert (norm(x), digest(x), SKETCH(x).count_nonzero(), levels(x).count_nonzero()) == (0, 0, 0, 0)


def test_a_packed_format_is_known_by_its_bytes() -> None:
    x = torch.arange(1, 9, dtype=torch.uint8)
    packed = x.view(torch.float4_e2m1fn_x2)
    assert (norm(packed), digest(packed)) == (norm(x), digest(x)) and torch.equal(SKETCH(packed), SKETCH(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float32])
def test_rows_of_one_number_of_a_turned_tensor_have_digests(dtype: torch.dtype) -> None:
    row = torch.arange(5).to(dtype)[None]
    assert torch.equal(row_digests(row.T), row_digests(row.flatten()[:, None].clone()))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_sparse_tensor_is_measured_as_a_dense_one(layout: torch.layout) -> None:
    dense = torch.eye(5)
    sparse = dense.to_sparse(layout=layout)
    assert (digest(sparse), norm(sparse)) == (digest(dense), norm(dense))
    assert torch.equal(SKETCH(sparse), SKETCH(dense))
