"""A discriminator that is given real and made samples at once, or in passes of their own."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import trainparity
from tests.support.against_twins import compared

STEPS, BATCH = 4, 16


def train(parts: int, together: bool, left_out: int, folder: Path, twin: int, *, detached: bool = True) -> None:
    """Train under bf16 autocast; so many of a step's real samples are left out."""
    torch.manual_seed(0)
    d = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    g = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
    optimizers = {model: torch.optim.Adam(model.parameters(), lr=2e-4) for model in (d, g)}
    draws = torch.Generator().manual_seed(1)

    def step(model: nn.Module, losses: list[Tensor]) -> None:
        for loss in losses:
            loss.backward()
        optimizers[model].step()
        optimizers[model].zero_grad()

    def judged(real: Tensor, noise: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            made = (g(noise).detach() if detached else g(noise)).float()
            says = d(torch.cat([real, made])).split([len(real), len(made)]) if together else (d(real), d(made))
        return (softplus(-says[0].float()).sum() + softplus(says[1].float()).sum()) / BATCH

    def fooled(noise: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            says = d(g(noise))
        return softplus(-says.float()).sum() / BATCH

    with (
        trainparity.record(d, optimizers[d], folder, twin=twin, interval=1),
        trainparity.record(g, optimizers[g], folder, twin=twin, interval=1, name="G"),
    ):
        for _ in range(STEPS):
            real, noise = torch.randn(BATCH, 6, generator=draws)[left_out:], torch.randn(BATCH, 4, generator=draws)
            step(d, [judged(*each) for each in zip(real.chunk(parts), noise.chunk(parts), strict=True)])
            optimizers[d].zero_grad()
            optimizers[g].zero_grad()
            step(g, [fooled(some) for some in noise.chunk(parts)])


@pytest.mark.parametrize(("runs", "parts"), [((False, True), 1), ((True, False), 1), ((False, True), 4)])
def test_together_or_apart_they_are_the_same_samples(runs: tuple[bool, bool], parts: int, tmp_path: Path) -> None:
    first, second = (partial(train, number, together, 0) for number, together in zip((1, parts), runs, strict=True))
    verdict = compared(first, second, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@pytest.mark.parametrize("together", [False, True])
def test_real_samples_that_are_left_out_are_named(together: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, 1, together, 0), partial(train, 1, together, 4), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "samples"), verdict
    assert "4 samples are left out" in (verdict.explanation or "")


@pytest.mark.parametrize("parts", [1, 4])
def test_gradients_of_anothers_loss_that_are_thrown_away_are_none(parts: int, tmp_path: Path) -> None:
    verdict = compared(partial(train, 1, False, 0), partial(train, parts, False, 0, detached=False), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation
