"""A temperature that is learned beside the weights: any change of one number's gradient is a multiple of it."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.against_twins import LABELS, compared, train


class Tempered(nn.Module):
    def __init__(self, times: float) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 10), nn.Parameter(torch.tensor(2.0))
        self.scale.register_hook(lambda gradient: times * gradient)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs) * self.scale  # type: ignore[no-any-return]


def _loss(outputs: Any) -> Tensor:
    return nn.functional.cross_entropy(outputs, LABELS)


def test_it_is_no_penalty_of_the_weights(tmp_path: Path) -> None:
    runs = [partial(train, partial(Tempered, times), _loss, False) for times in (1.0, 2.0)]
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "different"
    assert "times the weights" not in str(verdict.explanation)
    assert verdict.tensor == "gradient scale" and verdict.cause == "backward", verdict.explanation
