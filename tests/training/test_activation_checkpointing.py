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
