"""An update rounds as the weight itself is stored: neither a frozen base in bf16, nor another weight, hides it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared

BF16 = torch.bfloat16


class Adapted(nn.Module):
    """A classifier in bf16 whose inner layer has an adapter, as of QLoRA."""

    def __init__(self, stored: torch.dtype, frozen: bool) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(8, 32, dtype=BF16), nn.Linear(32, 10, dtype=BF16)
        self.requires_grad_(not frozen)
        self.down, self.up = nn.Linear(8, 4, bias=False), nn.Linear(4, 32, bias=False)
        self.down.to(stored), self.up.to(stored)

    def forward(self, values: Tensor) -> Tensor:
        adapted = self.up(self.down(values.to(self.up.weight.dtype))).to(BF16)
        scores: Tensor = self.head(torch.relu(self.inner(values.to(BF16)) + adapted))
        return scores.float()


class SGD(torch.optim.SGD):
    """Takes a part of the update of weights of one shape."""

    def __init__(self, parameters: list[Tensor], part: float) -> None:
        super().__init__(parameters, lr=1e-2)
        self._part = part

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        changed = [p for group in self.param_groups for p in group["params"] if p.shape == (4, 8)]
        before = [parameter.detach().clone() for parameter in changed]
        super().step()
        for parameter, old in zip(changed, before, strict=True):
            parameter.data.lerp_(old, 1 - self._part)


def _train(
    folder: Path, twin: int, frozen: bool = True, stored: torch.dtype = torch.float32, part: float = 1.0, cut: int = 1
) -> None:
    torch.manual_seed(0)
    model = Adapted(stored, frozen)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], part)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            values, labels = torch.randn(16, 8, generator=draws), torch.randint(10, (16,), generator=draws)
            for given, wanted in zip(values.chunk(cut), labels.chunk(cut), strict=True):
                (nn.functional.cross_entropy(model(given), wanted) / cut).backward()
            optimizer.step()


def judged(folder: Path, **other: object) -> tuple[str, str | None]:
    frozen = {"frozen": other.pop("frozen", True)}
    reference: Callable[..., None] = partial(_train, **frozen)  # type: ignore[arg-type]
    verdict = compared(reference, partial(_train, **frozen, **other), folder)  # type: ignore[arg-type]
    return verdict.verdict, verdict.cause


@pytest.mark.parametrize("frozen", [True, False])
def test_half_an_update_of_an_adapter_is_seen_over_weights_in_bf16(frozen: bool, tmp_path: Path) -> None:
    assert judged(tmp_path, frozen=frozen, part=0.5) == ("different", "update")


@pytest.mark.parametrize("frozen", [True, False])
def test_accumulation_of_them_is_the_same_training(frozen: bool, tmp_path: Path) -> None:
    assert judged(tmp_path, frozen=frozen, cut=4) == ("equivalent", None)


def test_adapters_stored_as_coarsely_as_their_base_are_another_precision(tmp_path: Path) -> None:
    assert judged(tmp_path, stored=BF16) == ("different", "precision")
