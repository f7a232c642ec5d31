"""Compiled code draws other random numbers than eager code, from one state of the generator."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trainparity
from tests.support.against_twins import compared


def _train(compiled: bool, dropout: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 10))
    # The backend that takes operators apart draws dropout's mask as inductor does, and compiles nothing more.
    model: Any = torch.compile(plain, backend="aot_eager_decomp_partition") if compiled else plain
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(16, 4, generator=draws)), torch.arange(16) % 10).backward()
            optimizer.step()


def test_dropout_that_compiled_code_draws_is_randomness(tmp_path: Path) -> None:
    verdict = compared(partial(_train, False, 0.5), partial(_train, True, 0.5), tmp_path / "drawn")
    assert (verdict.verdict, verdict.cause) == ("different", "randomness"), verdict.explanation
    assert verdict.advice and "fallback_random" in verdict.advice
    verdict = compared(partial(_train, False, 0.0), partial(_train, True, 0.0), tmp_path / "none")
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation
