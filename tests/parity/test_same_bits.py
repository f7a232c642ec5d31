"""Under bf16 a loss is judged at its own precision where all that the model returns has the same bits."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, one_hot, smooth_l1_loss

from tests.support.against_twins import compared, train
from trainparity.records.verdict import Verdict

LABELS = torch.arange(16) % 10
Loss = Callable[[Tensor, Tensor], Tensor]
"""Of outputs, and of what lies inside of the model."""


class Routed(nn.Module):
    """A classifier that returns, beside its logits, how evenly its gate spreads the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate, self.head = nn.Linear(4, 16), nn.Linear(16, 4), nn.Linear(16, 10)

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.inner(values))
        weights = self.gate(hidden).float().softmax(-1)
        return self.head(hidden * weights.repeat(1, 4).to(hidden.dtype)), 4 * weights.mean(0).square().sum()


def smoothed(part: float, outputs: Tensor, even: Tensor) -> Tensor:
    return cross_entropy(outputs, LABELS, label_smoothing=part) + 0.01 * even


def smoothed_by_hand(outputs: Tensor, even: Tensor) -> Tensor:
    targets = 0.9 * one_hot(LABELS, 10) + 0.1 / 10
    return -(targets * log_softmax(outputs, 1)).sum(1).mean() + even / 100


def with_a_constant(outputs: Tensor, even: Tensor) -> Tensor:
    return smoothed_by_hand(outputs, even) + 0.5


def weighed(weight: float, outputs: Tensor, even: Tensor) -> Tensor:
    return cross_entropy(outputs, LABELS, label_smoothing=0.1) + weight * even


def towards(gamma: float, outputs: Tensor, even: Tensor) -> Tensor:
    return smooth_l1_loss(outputs, gamma * outputs.detach().roll(1, 0) + one_hot(LABELS, 10))


def judged(reference: Loss, other: Loss, folder: Path) -> Verdict:
    return compared(*(partial(train, Routed, in_single(loss), True) for loss in (reference, other)), folder)


def in_single(loss: Loss) -> Callable[[tuple[Tensor, Tensor]], Tensor]:
    """Return the loss of what the model returns, computed in single precision."""
    return lambda returned: loss(returned[0].float(), returned[1])


RIGHT = {"by hand": smoothed_by_hand, "with a constant": with_a_constant}


@pytest.mark.parametrize("name", RIGHT)
def test_another_form_of_a_loss_is_the_same_training(name: str, tmp_path: Path) -> None:
    verdict = judged(partial(smoothed, 0.1), RIGHT[name], tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


WRONG: dict[str, tuple[Loss, Loss]] = {
    "smoothing": (partial(smoothed, 0.1), partial(smoothed, 0.11)),
    "weight of an auxiliary loss": (partial(weighed, 0.01), partial(weighed, 0.02)),
    "auxiliary loss forgotten": (partial(weighed, 0.01), partial(weighed, 0.0)),
    "discount": (partial(towards, 0.99), partial(towards, 0.98)),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_loss_is_seen(name: str, tmp_path: Path) -> None:
    verdict = judged(*WRONG[name], tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation


class Penalised(Routed):
    """One that returns, beside its logits, how large its weights are."""

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(values)[0], torch.stack([weight.abs().sum() for weight in self.parameters()]).sum()


def test_a_small_penalty_on_weights_is_seen(tmp_path: Path) -> None:
    """Which adds to each gradient less than bf16 rounds of it, and to nothing that lies on the way there."""
    runs = [partial(train, Penalised, in_single(partial(weighed, weight)), True) for weight in (0.0, 1e-5)]
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation


def test_a_detached_term_is_the_way_back(tmp_path: Path) -> None:
    def detached(outputs: Tensor, even: Tensor) -> Tensor:
        return cross_entropy(outputs, LABELS) + even.detach()

    verdict = judged(lambda outputs, even: cross_entropy(outputs, LABELS) + even, detached, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation


class Embedded(nn.Module):
    """A classifier of few kinds of values, whose embedding may be a product with one-hot vectors."""

    def __init__(self, product: bool) -> None:
        super().__init__()
        self.table, self.head, self.product = nn.Embedding(4, 16), nn.Linear(64, 10), product

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        kinds = (values + 2).long().clamp(0, 3)
        weights = self.table.weight
        found = one_hot(kinds, 4).to(weights.dtype) @ weights if self.product else self.table(kinds)
        return self.head(found.to(torch.bfloat16).flatten(1)), torch.zeros(())


def test_a_constant_in_the_loss_beside_an_embedding_by_a_product_is_the_same_training(tmp_path: Path) -> None:
    runs = [
        partial(train, partial(Embedded, product), in_single(loss), True)
        for product, loss in ((False, partial(smoothed, 0.1)), (True, with_a_constant))
    ]
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


class Looked(nn.Module):
    """A model in bf16, many of whose tokens are one, which it looks up in a table or multiplies with it."""

    def __init__(self, product: bool) -> None:
        super().__init__()
        self.table, self.inner, self.head = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 10)
        self.product = product
        self.bfloat16()

    def forward(self, values: Tensor) -> Tensor:
        mixed = values @ torch.randn(4, 128, generator=torch.Generator().manual_seed(2))
        tokens = torch.where(mixed > 2.2, 0, 1 + (100 * mixed).long().abs() % 49)
        weights = self.table.weight
        found = one_hot(tokens, 50).to(weights.dtype) @ weights if self.product else self.table(tokens)
        return self.head(self.inner(found).tanh().mean(1))  # type: ignore[no-any-return]


def test_rows_of_one_token_that_add_up_otherwise_are_the_same_training(tmp_path: Path) -> None:
    def loss(outputs: Tensor) -> Tensor:
        return cross_entropy(outputs.float(), LABELS)

    verdict = compared(*(partial(train, partial(Looked, product), loss, False) for product in (False, True)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
