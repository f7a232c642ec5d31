"""A frozen base under a trained head, in bf16: its weights are none of the training, and decide what that is."""

from functools import partial
from pathlib import Path

import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared


def _train(levels: int, parts: int, folder: Path, twin: int) -> None:
    """Train a head on a base whose weights are rounded to so many levels; 0: not rounded."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).requires_grad_(False)
    for parameter in base.parameters():
        if levels and parameter.ndim == 2:
            largest = parameter.abs().amax(1, keepdim=True)
            parameter.copy_((parameter / largest * levels).round() / levels * largest)
    model = nn.Sequential(base.bfloat16(), nn.LayerNorm(32), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(6):
            optimizer.zero_grad()
            images, labels = torch.randn(16, 32, generator=draws), torch.randint(8, (16,), generator=draws)
            for some, wanted in zip(images.chunk(parts), labels.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(some)
                (nn.functional.cross_entropy(outputs.float(), wanted) / parts).backward()
            optimizer.step()


def test_a_base_of_four_bits_is_another_one(tmp_path: Path) -> None:
    verdict = compared(partial(_train, 0, 1), partial(_train, 7, 1), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "weights-not-loaded"), verdict.explanation


def test_a_base_is_the_same_in_parts(tmp_path: Path) -> None:
    assert compared(partial(_train, 0, 1), partial(_train, 0, 4), tmp_path).verdict == "equivalent"
