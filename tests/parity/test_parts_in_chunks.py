"""A head that the loop calls over chunks of what the body returns: the loss of a long sequence in less memory."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import compared

SAMPLES, TOKENS = 8, 12
Chunks = Callable[[Tensor, Tensor], list[tuple[Tensor, Tensor]]]


class Language(nn.Module):
    """A language model that returns hidden states; the loop calls its head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(30, 24), nn.GRU(24, 24, batch_first=True), nn.Linear(24, 30)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.body(self.embedding(tokens))[0]
        return hidden


def whole(hidden: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(hidden, targets)]


def along_the_sequence(hidden: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(hidden.chunk(3, 1), targets.chunk(3, 1), strict=True))


def by_tokens(hidden: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(hidden.flatten(0, 1).chunk(4), targets.flatten().chunk(4), strict=True))


def _train(chunks: Chunks, smoothing: float, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            tokens = torch.randint(30, (SAMPLES, TOKENS + 1), generator=draws)
            loss = torch.zeros(())
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                for hidden, targets in chunks(model(tokens[:, :-1]), tokens[:, 1:]):
                    scores = model.head(hidden).float().flatten(0, -2)
                    loss = loss + cross_entropy(scores, targets.flatten(), reduction="sum", label_smoothing=smoothing)
            (loss / (SAMPLES * TOKENS)).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("chunks", [along_the_sequence, by_tokens])
def test_a_head_over_chunks_is_the_same_training_and_another_loss_is_not(
    chunks: Chunks, coarse: bool, tmp_path: Path
) -> None:
    reference = partial(_train, whole, 0.0, coarse)
    same = compared(reference, partial(_train, chunks, 0.0, coarse), tmp_path / "same")
    assert same.verdict == "equivalent", same.explanation
    other = compared(reference, partial(_train, chunks, 0.1, coarse), tmp_path / "other")
    assert (other.verdict, other.cause) == ("different", "loss-or-targets"), other.explanation
