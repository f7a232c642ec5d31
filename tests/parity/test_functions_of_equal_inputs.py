"""In bf16 a module without weights that is given the same bits can round in one place alone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

import trainparity
from tests.support.against_twins import LABELS, compared


class ByHand(nn.Module):
    """GELU as a formula, in the format that it is given."""

    def forward(self, given: Tensor) -> Tensor:
        return 0.5 * given * (1.0 + torch.erf(given / 2**0.5))


def train(make: Callable[[], nn.Module], norm: bool, folder: Path, twin: int, *, parts: int = 1) -> None:
    torch.manual_seed(0)
    between = nn.LayerNorm(64) if norm else nn.Identity()
    model = nn.Sequential(nn.Linear(8, 64), between, make(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.randn(16, 8, generator=draws)
            for samples, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(samples)
                (cross_entropy(outputs.float(), labels) / parts).backward()
            optimizer.step()


def leaky() -> nn.Module:
    return nn.LeakyReLU(0.01)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("norm", [False, True])
def test_a_leak_of_a_hundredth_is_seen(norm: bool, parts: int, tmp_path: Path) -> None:
    verdict = compared(partial(train, nn.ReLU, norm), partial(train, leaky, norm, parts=parts), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward")
    assert "2 (ReLU)" in (verdict.explanation or "")


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("other", [ByHand, lambda: nn.GELU("tanh")])
def test_another_form_of_one_function_is_not(
    other: Callable[[], nn.Module], norm: bool, parts: int, tmp_path: Path
) -> None:
    verdict = compared(partial(train, nn.GELU, norm), partial(train, other, norm, parts=parts), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


class Attenuated(nn.Sequential):
    """A residual that is nine tenths as large."""

    def __init__(self, factor: float) -> None:
        super().__init__(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
        self.factor = factor

    def forward(self, given: Tensor) -> Tensor:
        return self.factor * given + super().forward(given)  # type: ignore[no-any-return]


@pytest.mark.parametrize("factor", [0.85, 0.98])
@pytest.mark.parametrize("parts", [1, 4])
def test_what_forward_makes_otherwise_is_no_matter_of_backward_in_another_cut(
    parts: int, factor: float, tmp_path: Path
) -> None:
    """Where outputs agree within the margin of bf16, and are beyond the floor itself."""
    reference, other = (partial(train, partial(Attenuated, part), True) for part in (1.0, factor))
    verdict = compared(reference, partial(other, parts=parts), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation


class Adapter(nn.Module):
    """A layer with an adapter beside it, or merged into its weights, of which no module returns what these make."""

    def __init__(self, merged: bool) -> None:
        super().__init__()
        self.base, self.merged = nn.Linear(64, 64).requires_grad_(False), merged
        self.down, self.up = (nn.Parameter(0.2 * torch.randn(*shape)) for shape in ((4, 64), (64, 4)))

    def forward(self, given: Tensor) -> Tensor:
        if self.merged:
            return linear(given, self.base.weight + 2 * (self.up @ self.down), self.base.bias)
        output: Tensor = self.base(given) + 2 * (given @ self.down.T @ self.up.T)
        return output


def adapted(merged: bool) -> nn.Module:
    return nn.Sequential(Adapter(merged), Adapter(merged), nn.Dropout(0.0))


@pytest.mark.parametrize("parts", [1, 4])
def test_weights_that_no_module_uses_round_in_front_of_it(parts: int, tmp_path: Path) -> None:
    beside, merged = (partial(train, partial(adapted, how), True) for how in (False, True))
    verdict = compared(beside, partial(merged, parts=parts), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
