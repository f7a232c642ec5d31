"""The noise that twins are made of."""

import pytest
import torch
from torch import nn

from trainparity.parity.recording.formats import UNIT_ROUNDOFF, number_format
from trainparity.parity.recording.perturb import Noise, perturb


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_number_moves_by_about_one_unit_in_its_last_place(dtype: torch.dtype) -> None:
    given = (torch.rand(1000, dtype=torch.float64) * 4 + 1.1).to(dtype)
    moved = Noise(seed=1, tf32=False)(given)
    assert moved.dtype == dtype
    relative = ((moved - given).double() / given.double()).abs() / number_format(dtype).unit_roundoff
    assert (relative > 0.9).all() and (relative < 4.1).all()
    assert 400 < int((moved > given).sum()) < 600


@pytest.mark.parametrize("stored", [torch.uint8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e8m0fnu])
def test_numbers_of_few_bits_and_integers_stay_where_other_weights_move(stored: torch.dtype) -> None:
    model = nn.Linear(8, 8)
    numbers = torch.randint(0, 100, (8, 8)).to(stored)
    model.stored = nn.Parameter(numbers.clone(), requires_grad=False)
    before = model.weight.detach().clone()
    perturb(model, UNIT_ROUNDOFF["bf16"], seed=1)
    assert torch.equal(model.stored.double(), numbers.double())
    apart = (model.weight / before - 1).abs()
    assert (apart > 2.0**-9).all() and (apart < 2.0**-7).all()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_both_parts_of_a_complex_weight_move(dtype: torch.dtype) -> None:
    model = nn.Linear(8, 8, dtype=dtype)
    model.weight = nn.Parameter(model.weight.detach().t().conj())
    before, unit = torch.view_as_real(model.weight.detach().resolve_conj()).clone(), UNIT_ROUNDOFF["bf16"]
    perturb(model, unit, seed=1)
    apart = (torch.view_as_real(model.weight.detach().resolve_conj()) / before - 1) / unit
    assert torch.allclose(apart.abs(), torch.ones_like(apart), atol=1e-4)
    assert {tuple(signs) for signs in apart.sign().flatten(0, 1).tolist()} == {(1, 1), (1, -1), (-1, 1), (-1, -1)}


def test_noise_moves_both_parts_of_complex_numbers_and_of_their_gradients() -> None:
    given = torch.randn(1000, dtype=torch.complex64, requires_grad=True)
    moved = Noise(seed=1, tf32=False)(given)
    moved.backward(torch.full_like(given, 1 + 1j))
    assert given.grad is not None
    for found, expected in ((moved.detach(), given.detach()), (given.grad, torch.full_like(given, 1 + 1j))):
        apart = torch.view_as_real(found) / torch.view_as_real(expected.detach()) - 1
        assert (apart.abs() < 2.0**-21).all() and (apart != 0).float().mean() > 0.9
