"""Batches that BatchNorm counts, which is exact in any format."""

from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from trainparity.parity.compare import compare_folders


def train(folder: Path, twin: int, *, parts: int, once_more: int) -> None:
    """Train 12 steps under bf16 autocast, with a further pass in training mode after one of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    aside = nn.BatchNorm1d(10)  # of which nothing comes back to the training
    both = nn.ModuleList([model, aside])
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.05), torch.Generator().manual_seed(1)
    with trainparity.record(both, optimizer, folder, twin=twin, interval=1):
        for step in range(12):
            optimizer.zero_grad()
            images, labels = torch.randn(16, 3, 8, 8, generator=draws), torch.randint(10, (16,), generator=draws)
            for some, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(some)
                (nn.functional.cross_entropy(outputs.float(), wanted) / parts).backward()
            with torch.no_grad():
                for _ in range(2 if step == once_more else 1):
                    aside(images.flatten(1)[:, :10])
            optimizer.step()


@pytest.mark.parametrize("twins", [0, 2])
@pytest.mark.parametrize(("parts", "once_more"), [(1, -1), (4, -1), (1, 9)])
def test_a_pass_more_in_training_mode_is_seen(parts: int, once_more: int, twins: int, tmp_path: Path) -> None:
    for twin in range(1 + twins):
        train(tmp_path / "one", twin, parts=1, once_more=-1)
    train(tmp_path / "other", 0, parts=parts, once_more=once_more)
    found = compare_folders(tmp_path / "one", tmp_path / "other")
    if once_more < 0:
        assert found.verdict in ("bitwise", "equivalent"), (found.reason, found.explanation)
    else:
        assert (found.cause, found.step, found.weights) == ("buffers-only", once_more, "bitwise"), found.explanation
        assert "num_batches_tracked is 10 in" in (found.explanation or "")
