import weakref

import pytest
import torch
from torch import Tensor, nn

from trainparity.training.saved_tensors import SavedTensors

CPU = torch.device("cpu")
EDGE = 64
LARGE = EDGE * EDGE * 4
"""Bytes of one activation."""


def layers(count: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(EDGE, EDGE), nn.Tanh(), nn.ReLU())))


def gradients(model: nn.Module, saved: SavedTensors | None, *, to_host: bool = True) -> list[Tensor]:
    model.zero_grad()
    inputs = torch.randn(EDGE, EDGE, generator=torch.Generator().manual_seed(1))
    if saved is None:
        loss = model(inputs).square().sum()
    else:
        with saved.saving(model, to_host=to_host):
            loss = model(inputs).square().sum()
    loss.backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("to_host", [True, False])
@pytest.mark.parametrize("limit", [0, 3 * LARGE, 1 << 30])
def test_gradients_are_the_same_to_the_last_bit(limit: int, to_host: bool) -> None:
    model, saved = layers(), SavedTensors(CPU, limit, smallest=LARGE)
    wanted = [gradient.clone() for gradient in gradients(model, None)]
    for _ in range(3):  # buffers are used again
        found = gradients(model, saved, to_host=to_host)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
        assert saved.on_device == 0
        assert not (saved._kept or saved._away or saved._leaving)  # nor does a long training gather what is gone


def test_what_is_moved_leaves_the_device_and_comes_back_as_far_as_there_is_room() -> None:
    model, saved = layers(), SavedTensors(CPU, 3 * LARGE, smallest=LARGE)
    gradients(model, saved)
    assert saved.peak <= 4 * LARGE  # the one that is just saved, or used, beside the limit
    assert saved.total >= 12 * LARGE


def test_what_was_to_be_kept_is_moved_beyond_the_limit() -> None:
    model, kept = layers(), SavedTensors(CPU, 3 * LARGE, smallest=LARGE)
    gradients(model, kept, to_host=False)
    assert kept.peak <= 4 * LARGE < kept.total


def test_a_tensor_that_two_layers_save_is_held_once() -> None:
    """ReLU saves what it returns, which the next layer saves as its input."""
    model, saved = nn.Sequential(nn.ReLU(), nn.Linear(EDGE, EDGE)), SavedTensors(CPU, 1 << 30, smallest=LARGE)
    inputs = torch.randn(EDGE, EDGE, requires_grad=True)
    with saved.saving(model, to_host=False):
        loss = model(inputs * 1.0).sum()
    assert saved.on_device == saved.total == LARGE
    loss.backward()
    assert saved.on_device == 0


def test_parameters_and_small_tensors_stay() -> None:
    model, saved = nn.Linear(EDGE, EDGE), SavedTensors(CPU, 0, smallest=LARGE)
    with saved.saving(model, to_host=True):
        model(torch.ones(2, EDGE, requires_grad=True)).sum().backward()
    assert saved.total == 0


@pytest.mark.parametrize("to_host", [True, False])
def test_a_tensor_that_is_changed_after_it_was_saved_is_an_error(to_host: bool) -> None:
    saved, inputs = SavedTensors(CPU, 1 << 30, smallest=0), torch.randn(EDGE, EDGE, requires_grad=True)
    with saved.saving(nn.Identity(), to_host=to_host):
        hidden = inputs.exp()
        loss = hidden.sin().sum()
    hidden.add_(1)
    if to_host:  # the copy was made before
        loss.backward()
        assert inputs.grad is not None and torch.equal(inputs.grad, inputs.exp() * inputs.exp().cos())
    else:
        with pytest.raises(RuntimeError, match="changed in place after it was saved"):
            loss.backward()


def test_strides_survive() -> None:
    model = nn.Conv2d(4, 4, 3, padding=1).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = torch.randn(2, 4, 32, 32).to(memory_format=torch.channels_last).requires_grad_()
    plain = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    saved = SavedTensors(CPU, 0, smallest=1)
    with saved.saving(model, to_host=True):
        loss = model(images).square().sum()
    assert saved.total > 0
    moved = torch.autograd.grad(loss, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(plain, moved, strict=True))


def test_a_conjugate_is_not_taken_for_what_it_is_one_of() -> None:
    z, saved = torch.randn(EDGE, EDGE, dtype=torch.complex64, requires_grad=True), SavedTensors(CPU, 1 << 30, 1)

    def loss() -> Tensor:
        w = z * 1
        return (w * w * w.conj()).real.sum()

    (wanted,) = torch.autograd.grad(loss(), z)
    with saved.saving(nn.Identity(), to_host=False):
        made = loss()
    assert torch.equal(torch.autograd.grad(made, z)[0], wanted)


@pytest.mark.parametrize("to_host", [True, False])
def test_what_backward_never_comes_to_is_let_go(to_host: bool) -> None:
    saved = SavedTensors(CPU, 3 * LARGE, smallest=LARGE)
    gate, layer = nn.Linear(EDGE, EDGE), nn.Linear(EDGE, EDGE)
    for _ in range(3):
        with saved.saving(layer, to_host=to_host):
            inputs = torch.randn(EDGE, EDGE)
            loss = (layer(inputs).tanh() * gate(inputs).sigmoid().detach()).sum()
        loss.backward()
        del loss
        assert saved.on_device == 0


def test_a_pass_without_backward_holds_nothing() -> None:
    saved, layer = SavedTensors(CPU, 3 * LARGE, smallest=2 * LARGE), nn.Linear(EDGE, EDGE)  # so that all is small
    with saved.saving(layer, to_host=True):
        made = layer(torch.randn(EDGE, EDGE)).tanh()
    assert made.grad_fn is not None
    made.grad_fn.metadata["held by the node"] = held = torch.ones(1)
    alive = weakref.ref(held)
    del held, made
    assert alive() is None


def test_an_expanded_tensor_stays_as_small_as_it_is() -> None:
    saved, one = SavedTensors(CPU, 0, smallest=LARGE), torch.randn(1, EDGE, requires_grad=True)
    with saved.saving(nn.Identity(), to_host=True):
        loss = (one * 1.0).expand(EDGE, EDGE).sin().sum()
    assert saved.total == 0
    loss.backward()


def test_host_memory_is_that_of_one_step_where_sizes_vary() -> None:
    model, saved = layers(2), SavedTensors(CPU, 0, smallest=1)
    for step in range(60):
        with saved.saving(model, to_host=True):
            loss = model(torch.randn(EDGE + step * 7 % 60, EDGE)).square().sum()
        loss.backward()
        del loss
    assert 0 < saved._buffers.nbytes <= 2 * saved.total / 60 * 2
