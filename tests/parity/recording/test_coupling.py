"""Which losses couple the samples of a pass, by their autograd graphs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from trainparity import record
from trainparity.parity.recording.coupling import look
from trainparity.parity.recording.trace import Trace

Loss = Callable[[Tensor], Tensor]

IMAGES = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.rand(8, 3, generator=torch.Generator().manual_seed(1))
LABELS = TARGETS.argmax(1)
SIGMA = torch.zeros((), requires_grad=True)


def squares(outputs: Tensor) -> Tensor:
    return functional.mse_loss(outputs, TARGETS)


def dice(outputs: Tensor, dimension: int | None = None) -> Tensor:
    found = outputs.sigmoid()
    return (1 - 2 * (found * TARGETS).sum(dimension) / (found.sum(dimension) + TARGETS.sum(dimension))).mean()


def barlow(outputs: Tensor) -> Tensor:
    return ((outputs - outputs.mean(0)).T @ outputs).diagonal().square().sum()


COUPLED: dict[str, Loss] = {
    "contrast": lambda o: functional.cross_entropy(o @ o.T, torch.arange(8)),
    "contrast by einsum": lambda o: torch.einsum("nc,kc->nk", o, o).logsumexp(1).mean(),
    "hardest of a batch": lambda o: torch.cdist(o, o).amax(1).mean(),
    "root of the mean": lambda o: squares(o).sqrt(),
    "logarithm of the mean": lambda o: torch.log10(squares(o)),
    "norm of all": lambda o: (o - TARGETS).norm(),
    "Dice of all": dice,
    "Dice of each class": lambda o: dice(o, 0),
    "Dice of each class, from the last dimension": lambda o: dice(o, -2),
    "entropy of the mean": lambda o: (o.softmax(1).mean(0) * o.softmax(1).mean(0).log()).sum(),
    "squares of the means": lambda o: (o.mean(0) * o.mean(0)).sum(),
    "Barlow twins": barlow,
    "deviation over samples": lambda o: functional.relu(1 - o.std(0)).mean(),
    "softmax over samples": lambda o: -(o.log_softmax(0) * TARGETS).mean(),
    "others of the batch": lambda o: (o * o.roll(1, 0)).sum(1).sigmoid().mean(),
    "others of the batch, turned": lambda o: (o * o.flip(-2)).sum(1).sigmoid().mean(),
    "square of the mean": lambda o: o.mean() * o.mean(),
}

SEPARABLE: dict[str, Loss] = {
    "cross entropy": lambda o: functional.cross_entropy(o, LABELS, label_smoothing=0.1),
    "weighted classes": lambda o: functional.cross_entropy(o, LABELS, weight=torch.tensor([1.0, 2.0, 3.0])),
    "squares": squares,
    "scaled": lambda o: squares(o) * 1024 / 2,
    "counted by a mask": lambda o: (
        (functional.cross_entropy(o, LABELS, reduction="none") * (LABELS > 0)).sum() / (LABELS > 0).sum()
    ),
    "a queue of others": lambda o: torch.einsum("nc,kc->nk", o, TARGETS).logsumexp(1).mean(),
    "weighted by classes": lambda o: ((o - TARGETS).square().sum(0) / (1 + TARGETS.sum(0))).mean(),
    "Dice of each": lambda o: dice(o, 1),
    "deviation over features": lambda o: o.std(1).mean(),
    "evidence bound": lambda o: squares(o.sigmoid()) - 0.5 * (1 + o - o.square() - o.exp()).sum(),
    "a learned weight": lambda o: squares(o) * torch.exp(-SIGMA) + SIGMA,
    "per-sample attention": lambda o: (o[:, :, None] @ o[:, None, :]).sum(),
    "neighbouring features": lambda o: (o - o.roll(1, 1)).square().mean(),
    "nothing trained": lambda o: o.detach().sum().sqrt() + squares(o),
}


@pytest.mark.parametrize("name", COUPLED)
def test_a_loss_that_is_no_sum_over_samples_is_coupled(name: str) -> None:
    outputs = torch.nn.Linear(4, 3)(IMAGES)
    assert look([COUPLED[name](outputs)], {outputs.grad_fn}).coupled_by


@pytest.mark.parametrize("name", SEPARABLE)
def test_a_sum_over_samples_is_not(name: str) -> None:
    outputs = torch.nn.Linear(4, 3)(IMAGES)
    loss = SEPARABLE[name](outputs)
    assert look([loss], {outputs.grad_fn})[:2] == ([loss], "")


@pytest.mark.parametrize(("name", "operation"), [("contrast", "MmBackward0"), ("squares", "")])
def test_a_trace_says_by_what_its_loss_couples_samples(name: str, operation: str, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(model, optimizer, tmp_path):
        (COUPLED | SEPARABLE)[name](model(IMAGES)).backward()
        optimizer.step()
    assert Trace.load(tmp_path).layout.loss_coupled_by == operation


@pytest.mark.parametrize(("of_all_ranks", "gathered"), [({16}, True), (set(), False)])
def test_a_product_with_what_other_ranks_returned_is_told(of_all_ranks: set[int], gathered: bool) -> None:
    outputs = IMAGES.clone().requires_grad_() * 2
    loss = (outputs @ torch.cat([outputs, IMAGES]).T).logsumexp(1).mean()
    found = look([loss], {outputs.grad_fn}, of_all_ranks)
    assert (bool(found.coupled_by), found.gathered) == (True, gathered)


def test_what_only_moves_numbers_rounds_none() -> None:
    outputs = (IMAGES.bfloat16().requires_grad_() * 1).unflatten(0, (4, 2))
    ends = {outputs.grad_fn}
    moved = outputs.flatten(0, 1)[:, 1:].gather(1, LABELS[:, None] % 3).squeeze(1).clamp(min=0).float().square().sum()
    assert look([moved], ends).unit_roundoff == 2.0**-24
    assert look([(outputs * 3).float().sum()], ends).unit_roundoff == 2.0**-8
