"""In bf16 a module without weights that is given the same bits can round in one place alone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


class ByHand(nn.Module):
    """GELU as a formula, in the format that it is given."""

    def forward(self, given: Tensor) -> Tensor:
        return 0.5 * given * (1.0 + torch.erf(given / 2**0.5))


def train(make: Callable[[], nn.Module], norm: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    between = nn.LayerNorm(64) if norm else nn.Identity()
    model = nn.Sequential(nn.Linear(8, 64), between, make(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                outputs = model(torch.randn(16, 8, generator=draws))
            cross_entropy(outputs.float(), LABELS).backward()
            optimizer.step()


@pytest.mark.parametrize("norm", [False, True])
def test_a_leak_of_a_hundredth_is_seen(norm: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, nn.ReLU, norm), partial(train, lambda: nn.LeakyReLU(0.01), norm), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward")
    assert "2 (ReLU)" in (verdict.explanation or "")


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("other", [ByHand, lambda: nn.GELU("tanh")])
def test_another_form_of_one_function_is_not(other: Callable[[], nn.Module], norm: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, nn.GELU, norm), partial(train, other, norm), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation
