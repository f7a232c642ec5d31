"""What is said of a run whose recorded optimizer has made no step."""

from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.compare import load
from trainparity.records.base import RecordError


def test_an_optimizer_that_is_recorded_and_not_stepped_is_named(tmp_path: Path) -> None:
    """As SAM is, whose loop calls `first_step` and `second_step`: the optimizer inside of it makes the steps."""
    model = nn.Linear(2, 1)
    recorded, other = torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters())
    with trainparity.record(model, recorded, tmp_path):
        model(torch.ones(3, 2)).sum().backward()
        other.step()
    with pytest.raises(RecordError, match=r"no step of Adam, which was to be recorded, was made"):
        load(tmp_path)
