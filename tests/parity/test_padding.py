"""Token sequences that are padded to another length, and masked: the same training in any format."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared


class Classifier(nn.Module):
    """Classifies the mean over the tokens that the mask keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.kind = nn.Embedding(20, 16), nn.Embedding(2, 16)
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        embedded = self.embedding(input_ids) + self.kind(torch.zeros_like(input_ids))
        hidden = self.hidden(embedded).relu() * attention_mask[..., None]
        count = attention_mask.sum(1, keepdim=True)
        padded = input_ids.shape[1] > 9  # which else gives the same bits
        scores: Tensor = self.head((hidden / count[..., None]).sum(1) if padded else hidden.sum(1) / count)
        return scores


def _train(length: int, dtype: torch.dtype, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            tokens = nn.functional.pad(torch.randint(1, 20, (8, 9), generator=draws), (0, length - 9))
            labels = torch.randint(5, (8,), generator=draws)
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = nn.functional.cross_entropy(model(input_ids=tokens, attention_mask=(tokens > 0).long()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_padding_is_the_same_training(dtype: torch.dtype, tmp_path: Path) -> None:
    verdict = compared(partial(_train, 9, dtype), partial(_train, 16, dtype), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation
