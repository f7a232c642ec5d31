"""Rows inside of a model need be no samples: time may come first, and a packed sequence has a row for each step."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import trainparity
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict

SAMPLES, TIME = 32, 32
LENGTHS = 2 * (torch.arange(SAMPLES) % 16) + 2
"""Their sum is a multiple of the number of samples, as if each had 17 rows."""


class TimeFirst(nn.Module):
    """A recurrent classifier that puts time first inside."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.recurrent, self.head = nn.Embedding(20, 32), nn.GRU(32, 32), nn.Linear(32, 5)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        scores: Tensor = self.head(self.recurrent(self.embedding(tokens).transpose(0, 1))[0].mean(0))
        return scores


class Packed(TimeFirst):
    """One whose recurrent layer is given the steps of all sequences in one tensor."""

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(tokens).transpose(0, 1), lengths, enforce_sorted=False)
        scores: Tensor = self.head(pad_packed_sequence(self.recurrent(packed)[0])[0].mean(0))
        return scores


def _train(make: Callable[[], nn.Module], backwards: bool, smoothing: float, folder: Path, twin: int) -> None:
    """Train under bf16, where asked on each batch from its last sample to its first one."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            batch = [torch.randint(20, (SAMPLES, TIME), generator=draws), LENGTHS, torch.arange(SAMPLES) % 5]
            tokens, lengths, labels = (values.flip(0) if backwards else values for values in batch)
            with torch.autocast("cpu", torch.bfloat16):
                scores = model(tokens, lengths)
            loss = nn.functional.cross_entropy(scores.float(), labels, label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def judged(make: Callable[[], nn.Module], smoothing: float, folder: Path) -> Verdict:
    """Compare with the same batches in another order, and labels smoothed otherwise."""
    return compared(partial(_train, make, False, 0.1), partial(_train, make, True, smoothing), folder)


@pytest.mark.parametrize("make", [TimeFirst, Packed])
def test_another_order_of_the_samples_is_the_same_training(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    verdict = judged(make, 0.1, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("make", [TimeFirst, Packed])
def test_another_loss_is_seen_in_another_order_of_the_samples(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    verdict = judged(make, 0.12, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
