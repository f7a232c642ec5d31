from unittest.mock import patch

import torch
from torch import Tensor, nn

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


def test_buffers_that_no_pass_writes_are_copied_once() -> None:
    block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    block.register_buffer("mask", torch.ones(8))
    recompute_in_backward([block])
    copies = []
    with patch.object(Tensor, "clone", lambda tensor: copies.append(tensor) or tensor.mul(1)):
        for _ in range(3):
            block(torch.randn(4, 8, requires_grad=True)).sum().backward()
    assert len(copies) == 1
