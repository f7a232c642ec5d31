"""The noise that twins are made of."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.support.against_twins import train
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.recording.formats import UNIT_ROUNDOFF, number_format
from trainparity.parity.recording.perturb import Noise, OtherOrder, perturb
from trainparity.parity.recording.trace import Trace


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


def test_an_expanded_weight_which_cannot_be_written_stays_where_others_move() -> None:
    model = nn.Linear(8, 8)
    model.mask = nn.Parameter(torch.ones(1, 8).expand(8, 8), requires_grad=False)
    before = model.weight.detach().clone()
    perturb(model, UNIT_ROUNDOFF["bf16"], seed=1)
    assert bool((model.mask == 1).all()) and bool((model.weight != before).all())


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


def _rows_and_gradients(checkpointed: bool, other_order: bool) -> list[Tensor]:
    """Return what a LayerNorm under bf16 autocast returns of 512 rows, and the gradients of its weights and input."""
    torch.manual_seed(0)
    layer = nn.LayerNorm(8)
    OtherOrder(layer, lambda: other_order)
    rows, given = torch.randn(4, 128, 8).bfloat16().requires_grad_(), torch.randn(4, 128, 8) + 0.5
    with torch.autocast("cpu", torch.bfloat16):
        output = checkpoint(layer, rows, use_reentrant=False) if checkpointed else layer(rows)
    output.backward(given.to(output.dtype))
    assert rows.grad is not None and layer.weight.grad is not None and layer.bias.grad is not None
    return [output.detach(), rows.grad, layer.weight.grad, layer.bias.grad]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_twins_layer_norm_sums_its_gradients_in_another_order_alone(checkpointed: bool) -> None:
    """In bf16 the sum over rows stagnates: the order decides as much of it as the cut into micro-batches does."""
    one, other = (_rows_and_gradients(checkpointed, order) for order in (False, True))
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    for ours, theirs in zip(one[2:], other[2:], strict=True):
        assert 1e-3 < (ours - theirs).norm() / ours.norm() < 0.1


class Checkpointed(nn.Module):
    """A network whose normalisation passes again inside of backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1)

    def forward(self, values: Tensor) -> Tensor:
        scores: Tensor = self.head(checkpoint(self.norm, self.inner(values), use_reentrant=False))
        return scores


def test_a_twins_layer_norm_that_passes_again_for_a_checkpoint_sums_in_that_order_too(tmp_path: Path) -> None:
    for twin in range(2):
        train(Checkpointed, lambda outputs: outputs.square().mean(), False, tmp_path, twin)
    twins = [Trace.load(folder) for folder in (tmp_path / "twins").iterdir()]
    assert float(NoiseFloor(Trace.load(tmp_path), twins)["gradient"][0, -1]) < 1e-5
