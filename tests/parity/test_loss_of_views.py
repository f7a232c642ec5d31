"""Losses that look at a view of what the model returns, or at some of it: that rounds nothing, and so hides nothing."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

from tests.support.against_twins import LABELS, compared, train

TARGETS = torch.randn(16, generator=torch.Generator().manual_seed(2))


def smoothed(by: float, outputs: Tensor) -> Tensor:
    """Return the loss of sequences that are flattened, as a language model's."""
    return cross_entropy(outputs.view(4, 4, 10).flatten(0, 1).float(), LABELS, label_smoothing=by)


def chosen(discount: float, outputs: Tensor) -> Tensor:
    """Return that of the values of actions, as in Q-learning."""
    return smooth_l1_loss(outputs.gather(1, LABELS[:, None]).squeeze(1).float(), discount * TARGETS)


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))


@pytest.mark.parametrize(("loss", "values"), [(smoothed, (0.1, 0.11)), (chosen, (0.99, 0.98))])
def test_another_number_in_the_loss_is_seen_in_bf16(
    loss: Callable[[float, Tensor], Tensor], values: tuple[float, float], tmp_path: Path
) -> None:
    runs = [partial(train, _network, partial(loss, value), True) for value in values]
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
