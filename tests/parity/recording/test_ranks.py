"""What ranks tell each other."""

from pathlib import Path

import torch
from torch import Tensor

from tests.support.on_ranks import on_ranks
from trainparity.parity.recording import ranks


def test_rows_of_other_names_are_stacked_by_name(tmp_path: Path) -> None:
    """An expert that got no token on one rank was not called there."""
    first, second = on_ranks(2, tmp_path, _gathered)
    assert first.sum(0).tolist() == [[11, 11], [2, 2], [33, 33]]
    assert second.sum(0).tolist() == [[11, 11], [33, 33]]


def _gathered(rank: int) -> Tensor:
    names = [["gate", "expert.0", "expert.2"], ["gate", "expert.2"]]
    values = [torch.tensor([[1.0, 1], [2, 2], [3, 3]]), torch.tensor([[10.0, 10], [30, 30]])]
    return ranks.gather_named(names[rank], values[rank])
