"""Parameters whose gradient is nothing but rounding, of which Adam makes full steps all the same."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.support.against_twins import compared, train_in_parts


class Scaled(nn.Module):
    """A model whose one number is divided out again, as a scale in front of a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(4, 16), nn.LayerNorm(16, eps=0.0), nn.Linear(16, 10)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, samples: Tensor) -> Tensor:
        found: Tensor = self.outer(self.norm(self.scale * self.inner(samples)).tanh())
        return found


def train(parts: int, still: int | None, folder: Path, twin: int) -> None:
    """Train 4 steps, in which a twin's number may by chance get a gradient of zero."""

    def before_update(model: nn.Module) -> None:
        if twin == still and isinstance(model.scale, nn.Parameter) and model.scale.grad is not None:
            model.scale.grad.zero_()

    adam = partial(torch.optim.Adam, lr=0.01, eps=1e-12)
    train_in_parts(
        parts, False, folder, twin,
        optimizer=lambda model: adam(model.parameters()), scale=1 / parts, before_update=before_update, make=Scaled,
    )  # fmt: skip


@pytest.mark.parametrize("still", [None, 1, 2])
def test_a_step_that_one_twin_does_not_make_of_rounding_is_not_lost(still: int | None, tmp_path: Path) -> None:
    verdict = compared(partial(train, 1, still), partial(train, 4, None), tmp_path)
    assert verdict.verdict == "equivalent", verdict
