"""Passes that make targets, as a Q-learning loop's: a gradient that flows through them is a lost detach."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared


def _no_grad(model: nn.Module, states: Tensor) -> Tensor:
    with torch.no_grad():
        values: Tensor = model(states).max(1).values
    return values


WAYS = {
    "no_grad": _no_grad,
    "detach": lambda model, states: model(states).max(1).values.detach(),
    "lost": lambda model, states: model(states).max(1).values,
}


def _train(way: str, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters())
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(5):
            states, rewards = torch.randn(2, 32, 4, generator=draws), torch.randn(32, generator=draws)
            target = rewards + 0.9 * WAYS[way](model, states[1])
            optimizer.zero_grad()
            nn.functional.smooth_l1_loss(model(states[0])[:, 0], target).backward()
            optimizer.step()


@pytest.mark.parametrize("right", ["no_grad", "detach"])
def test_a_lost_detach_is_no_other_sample(right: str, tmp_path: Path) -> None:
    verdict = compared(partial(_train, right), partial(_train, "lost"), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation
    assert "through 2 forward passes" in str(verdict.explanation)


def test_both_ways_to_keep_gradients_out_are_the_same_training(tmp_path: Path) -> None:
    verdict = compared(partial(_train, "no_grad"), partial(_train, "detach"), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent")


class Siamese(nn.Module):
    """A view's prediction and its projection, which is the other view's target."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predictor = nn.Linear(4, 8), nn.Linear(8, 8)

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        projected = self.encoder(views)
        return self.predictor(projected), projected


def _train_siamese(stop: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Siamese()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(5):
            predicted, projected = model(torch.randn(32, 4, generator=draws))
            target = projected.detach() if stop else projected
            optimizer.zero_grad()
            (-nn.functional.cosine_similarity(predicted, target.flip(0)).mean()).backward()
            optimizer.step()


def test_an_output_that_takes_no_gradient_in_one_run_is_said(tmp_path: Path) -> None:
    verdict = compared(partial(_train_siamese, True), partial(_train_siamese, False), tmp_path)
    assert verdict.cause == "loss-or-targets"
    assert "reference no gradient comes back to (output).1, as behind a detach" in str(verdict.explanation)


def _train_refined(detaches: bool, folder: Path, twin: int) -> None:
    """Train a network on points, and on others that are made of what it says of those, as NeRF's fine samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            points = torch.randn(16, 4, generator=draws)
            coarse = model(points)
            between = points + (coarse.detach() if detaches else coarse).softmax(1)
            optimizer.zero_grad()
            (coarse.square().mean() + model(between.repeat(2, 1)).square().mean()).backward()
            optimizer.step()


@pytest.mark.parametrize("detaches", [True, False])
def test_points_that_take_a_gradient_in_one_run_are_not_left_out(detaches: bool, tmp_path: Path) -> None:
    verdict = compared(partial(_train_refined, detaches), partial(_train_refined, not detaches), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation
    assert f"takes a gradient in {tmp_path / ('test' if detaches else 'reference')}" in str(verdict.explanation)


def _train_beside_a_target(detaches: bool, part: float, folder: Path, twin: int) -> None:
    """Train towards what a target network makes, which follows by a part; it may be left with gradients."""
    torch.manual_seed(0)
    policy, target = (nn.Linear(4, 2) for _ in range(2))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    with trainparity.record(nn.ModuleList([policy, target]), optimizer, folder, twin=twin, interval=1):
        for states in torch.randn(5, 16, 4, generator=torch.Generator().manual_seed(1)):
            optimizer.zero_grad()
            with torch.set_grad_enabled(not detaches):
                wanted = target(states)
            nn.functional.smooth_l1_loss(policy(states), 1 + 0.9 * wanted).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, its in zip(target.parameters(), policy.parameters(), strict=True):
                    mine.lerp_(its, part)


@pytest.mark.parametrize(("part", "verdict"), [(0.05, "equivalent"), (0.06, "different")])
def test_gradients_that_no_optimizer_takes_decide_nothing(part: float, verdict: str, tmp_path: Path) -> None:
    found = compared(
        partial(_train_beside_a_target, True, 0.05), partial(_train_beside_a_target, False, part), tmp_path
    )
    assert found.verdict == verdict and found.cause != "gradients-not-zeroed", found
