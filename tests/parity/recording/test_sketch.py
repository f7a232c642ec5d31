import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.parity.recording.sketch import Sketcher, digest, norm


@given(st.integers(1, 64))
def test_small_tensors_are_measured_exactly(size: int) -> None:
    x = torch.randn(size, generator=torch.Generator().manual_seed(size))
    assert Sketcher(64)(x).norm().item() == pytest.approx(norm(x), rel=1e-12)


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
