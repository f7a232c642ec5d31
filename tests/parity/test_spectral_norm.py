"""Spectral normalisation, which iterates once in each forward pass: another cut makes other weights."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm

from tests.support.against_twins import compared, train_in_parts


def _train(norm: str, parts: int, folder: Path, twin: int) -> None:
    normalised = {"parametrized": parametrizations.spectral_norm, "hooked": spectral_norm}[norm]

    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        normalised(model[0])  # type: ignore[index]
        return torch.optim.SGD(model.parameters(), lr=0.1)

    run = partial(train_in_parts, parts, False, optimizer=sgd, scale=1 / parts, before_update=lambda model: None)
    run(folder, twin)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`")
@pytest.mark.parametrize("norm", ["parametrized", "hooked"])
def test_more_iterations_are_named(norm: str, tmp_path: Path) -> None:
    verdict = compared(partial(_train, norm, 1), partial(_train, norm, 2), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation
    assert "spectral normalisation iterates once in each forward pass" in str(verdict.explanation)
