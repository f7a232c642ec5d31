"""Positions that begin anew in each text of a batch that is packed: attention takes their differences alone."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import trainparity
from tests.support.against_twins import compared

TEXTS, LENGTH, WIDTH, VOCABULARY = 3, 8, 16, 32
TOKENS = TEXTS * LENGTH


class Rotary(nn.Module):
    """Turns pairs of numbers by angles that grow with the position (Su et al., arXiv 2104.09864)."""

    def forward(self, positions: Tensor) -> Tensor:
        angles = positions[..., None] * 10.0 ** -torch.arange(WIDTH // 2)
        return torch.stack([angles.cos(), angles.sin()], -1)


def turned(x: Tensor, by: Tensor) -> Tensor:
    first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = by.unbind(-1)
    return torch.stack([first * cosine - second * sine, first * sine + second * cosine], -1).flatten(-2).to(x.dtype)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rotary = nn.Embedding(VOCABULARY, WIDTH), Rotary()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        text = torch.arange(TOKENS) // LENGTH
        self.register_buffer("mask", (text[:, None] == text) & (torch.arange(TOKENS)[:, None] >= torch.arange(TOKENS)))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x, by = self.embed(tokens), self.rotary(positions)
        mixed = scaled_dot_product_attention(
            turned(self.q(x), by), turned(self.k(x), by), self.v(x), attn_mask=self.mask
        )
        scores: Tensor = self.head(x + mixed)
        return scores


def train(folder: Path, twin: int, *, positions: str = "of each text", coarse: bool = True) -> None:
    torch.manual_seed(0)
    model = Packed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    places = {
        "of each text": torch.arange(TOKENS) % LENGTH,
        "of the batch": torch.arange(TOKENS),
        "twice as far": 2 * (torch.arange(TOKENS) % LENGTH),
        "a bit further": 1.05 * (torch.arange(TOKENS) % LENGTH),
    }[positions].float()
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for tokens in torch.randint(0, VOCABULARY, (6, 8, TOKENS)):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                scores = model(tokens, places.expand(len(tokens), -1))
            cross_entropy(scores.float().flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_where_they_begin_is_all_the_same(coarse: bool, tmp_path: Path) -> None:
    reference = partial(train, coarse=coarse)
    found = compared(reference, partial(reference, positions="of the batch"), tmp_path / "right")
    assert found.verdict == "equivalent", found.explanation
    for positions in ("twice as far", "a bit further"):
        found = compared(reference, partial(reference, positions=positions), tmp_path / positions)
        assert (found.verdict, found.cause) == ("different", "inputs"), found.explanation
