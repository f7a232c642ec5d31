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
    keys = ranks.keys_of([["gate", "expert.0", "expert.2"], ["gate", "expert.2"]][rank])
    rows = [torch.tensor([[1.0, 1], [2, 2], [3, 3]]), torch.tensor([[10.0, 10], [30, 30]])][rank]
    every = ranks.gather_each({"keys": keys, "rows": rows})
    return ranks.by_key(keys, every["keys"], every["rows"])


def test_tensors_of_unequal_lengths_and_of_several_formats_travel_together(tmp_path: Path) -> None:
    assert all(on_ranks(3, tmp_path, _travelled))


def _travelled(rank: int) -> Tensor:
    values = [_mine(other) for other in range(3)]
    every = ranks.gather_each(values[rank])
    expected = {name: [value[name] for value in values] for name in values[0]}
    alike = ranks.gather_alike({name: value[:1] for name, value in values[rank].items() if name != "none"})
    same = [
        one.dtype == other.dtype and torch.equal(one, other)
        for name in expected
        for one, other in zip(every[name], expected[name], strict=True)
    ]
    same += [torch.equal(alike[name], torch.stack([one[:1] for one in expected[name]])) for name in alike]
    return torch.tensor(list(every) == list(expected) and all(same))


def _mine(rank: int) -> dict[str, Tensor]:
    return {
        "flags": torch.tensor([rank == 1] * (rank + 1)),
        "numbers": torch.arange(4.0 * (3 - rank)).double().view(3 - rank, 2, 2).transpose(1, 2) / 7,
        "none": torch.zeros(0, 3),
        "ids": torch.tensor([-(2**60) + rank, 5]),
    }
