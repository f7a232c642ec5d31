import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainparity.training.host_buffers import HostBuffers


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.bool])
def test_it_has_the_shape_strides_and_dtype_of_a_tensor(dtype: torch.dtype) -> None:
    tensor = torch.ones(3, 4, 5, 6).to(dtype).contiguous(memory_format=torch.channels_last)
    found, _ = HostBuffers(pinned=False).like(tensor)
    found.copy_(tensor)
    assert torch.equal(found, tensor) and found.stride() == tensor.stride() and found.dtype == dtype


def test_memory_is_used_again_for_another_shape_of_about_the_size() -> None:
    buffers = HostBuffers(pinned=False)
    first, give_back = buffers.like(torch.ones(30, 100))
    give_back()
    again, _ = buffers.like(torch.ones(2900).double()[:1499])
    assert again.data_ptr() == first.data_ptr()


def test_two_in_use_have_memory_of_their_own() -> None:
    buffers = HostBuffers(pinned=False)
    (one, _), (two, _) = buffers.like(torch.ones(100)), buffers.like(torch.ones(100))
    assert one.fill_(1).sum() == 100 and two.fill_(2).sum() == 200 and one.sum() == 100


@given(st.lists(st.lists(st.integers(1, 5000), max_size=8), max_size=20))
def test_no_more_is_held_than_was_in_use_at_a_time(steps: list[list[int]]) -> None:
    buffers, most = HostBuffers(pinned=False), 0
    for sizes in steps:
        taken = [buffers.like(torch.empty(size)) for size in sizes]
        most = max(most, buffers._used_bytes)
        assert buffers.nbytes <= most
        for _, give_back in taken:
            give_back()
        assert buffers._used_bytes == 0
