"""The noise that twins are made of."""

import pytest
import torch

from trainparity.parity.recording.formats import number_format
from trainparity.parity.recording.perturb import Noise


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_number_moves_by_about_one_unit_in_its_last_place(dtype: torch.dtype) -> None:
    given = (torch.rand(1000, dtype=torch.float64) * 4 + 1.1).to(dtype)
    moved = Noise(seed=1, tf32=False)(given)
    assert moved.dtype == dtype
    relative = ((moved - given).double() / given.double()).abs() / number_format(dtype).unit_roundoff
    assert (relative > 0.9).all() and (relative < 4.1).all()
    assert 400 < int((moved > given).sum()) < 600
