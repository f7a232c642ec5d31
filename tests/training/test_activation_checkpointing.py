import copy
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from trainparity.training import activation_checkpointing
from trainparity.training.activation_checkpointing import recompute_in_backward


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 8)) for _ in range(3))
    )


def gradients_and_saved(module: nn.Module) -> tuple[list[Tensor], int]:
    """Return the gradients of one pass, and how many numbers it kept for backward."""
    saved: list[int] = []
    torch.manual_seed(1)

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    inputs = torch.randn(4, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = module(inputs).square().sum()
    kept = sum(saved)
    loss.backward()
    return [p.grad for p in module.parameters() if p.grad is not None], kept


def test_gradients_are_the_same_to_the_last_bit_with_less_kept() -> None:
    plain, checkpointed = model(), model()
    recompute_in_backward(list(checkpointed))
    (wanted, all_kept), (found, few_kept) = gradients_and_saved(plain), gradients_and_saved(checkpointed)
    assert len(found) == len(wanted) == 12
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))  # dropout draws the same mask again
    assert few_kept < all_kept / 2


def test_parameters_keep_their_names() -> None:
    module = model()
    names = [name for name, _ in module.named_parameters()]
    recompute_in_backward(list(module))
    assert [name for name, _ in module.named_parameters()] == names


def with_state() -> nn.Sequential:
    torch.manual_seed(0)
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    return nn.Sequential(
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh()), nn.Sequential(spectral, nn.Tanh(), Counting())
    )


class Counting(nn.Module):
    """Scales by a count of its passes, which is another tensor after each."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        return x.square() * self.count


def test_buffers_are_those_of_one_pass_in_each_step() -> None:
    plain, checkpointed = with_state(), with_state()
    recompute_in_backward(list(checkpointed))
    for step in range(4):
        for module in (plain, checkpointed):
            module.train(step != 2)  # in between a pass in evaluation mode
            module.zero_grad()
        wanted, found = gradients_and_saved(plain)[0], gradients_and_saved(checkpointed)[0]
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), step
        buffers = zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True)
        assert all(torch.equal(a, b) for (_, a), (_, b) in buffers), step


class Late(nn.Module):
    """Keeps an average that it begins to write in its third pass, as an observer that is switched on."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes > 2:
            self.average[:8].mul_(0.9).add_(x.detach().mean(0))
        return torch.tanh(self.layer(x) + self.average[:8])


class Sharing(nn.Module):
    """Two modules and a view hold one buffer: one writes it, the others read it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes, self.reads = nn.Linear(8, 8), nn.Linear(8, 8)
        scale = torch.ones(8)
        self.writes.register_buffer("scale", scale)
        self.reads.register_buffer("scale", scale)
        self.reads.register_buffer("first", scale[:1])

    def forward(self, x: Tensor) -> Tensor:
        self.writes.scale.mul_(0.9).add_(x.detach().abs().mean(0))
        return torch.tanh(self.reads(self.writes(x).tanh() * self.reads.scale) * self.reads.first)


@pytest.mark.parametrize("kind", [Late, Sharing])
def test_buffers_that_are_written_late_or_shared_are_those_of_one_pass(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(kind(), kind())
    checkpointed = copy.deepcopy(plain)
    recompute_in_backward(list(checkpointed))
    for step in range(5):
        for module in (plain, checkpointed):
            module.zero_grad()
        wanted, found = gradients_and_saved(plain)[0], gradients_and_saved(checkpointed)[0]
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), step
        buffers = zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True)
        assert all(torch.equal(a, b) for (_, a), (_, b) in buffers), step


def test_a_large_buffer_that_is_written_late_is_an_error_once_and_then_known() -> None:
    block = Late(1 << 19)
    recompute_in_backward([block])
    for step in range(4):
        loss = block(torch.randn(4, 8, requires_grad=True)).sum()
        if step == 2:
            with pytest.raises(RuntimeError, match="a block wrote its buffer average, which it did not in earlier"):
                loss.backward()
        else:
            loss.backward()


def test_a_block_is_computed_again_as_often_as_backward_comes() -> None:
    plain, checkpointed = with_state(), with_state()
    recompute_in_backward(list(checkpointed))
    found = []
    for module in (plain, checkpointed):
        inputs = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
        loss = module(inputs).square().sum()
        (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
        loss.backward(retain_graph=True)
        (loss + slope.square().sum()).backward()
        found.append([p.grad for p in module.parameters()] + [*module.buffers()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_large_buffers_that_no_pass_writes_are_copied_once() -> None:
    block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    block.register_buffer("mask", torch.ones(1 << 19))
    recompute_in_backward([block])
    copies = []
    copied = activation_checkpointing._copies

    def noted(buffers: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
        copies.extend(buffers)
        return copied(buffers)

    with patch.object(activation_checkpointing, "_copies", noted):
        for _ in range(3):
            block(torch.randn(4, 8, requires_grad=True)).sum().backward()
    assert len(copies) == 2  # before the first pass, and for the second of that call
