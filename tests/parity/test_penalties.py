"""Terms of the loss that take weights, gradients or what lies inside of the model."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


def train(weight: float, parts: int, folder: Path, twin: int) -> None:
    """Train with half the squared distance from the first weights in the loss (L2-SP, Li et al., 2018)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    first = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            samples = torch.randn(16, 4, generator=draws)
            for some, labels in zip(samples.chunk(parts), LABELS.chunk(parts), strict=True):
                loss = nn.functional.cross_entropy(model(some), labels)
                for now, before in zip(model.parameters(), first.parameters(), strict=True):
                    loss = loss + weight / 2 * (now - before).square().sum()
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("weight", [0.0, 2.0])
@pytest.mark.parametrize("parts", [1, 4])
def test_another_weight_of_the_distance_from_the_first_weights_is_one_of_the_loss(
    parts: int, weight: float, tmp_path: Path
) -> None:
    verdict = compared(partial(train, 1.0, 1), partial(train, weight, parts), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "loss-or-targets", 1), verdict.explanation
    assert "what the weights have moved by" in (verdict.explanation or "")


def test_the_same_weight_is_the_same_training(tmp_path: Path) -> None:
    assert compared(partial(train, 1.0, 1), partial(train, 1.0, 4), tmp_path).verdict == "equivalent"


def train_critic(scale: float, weight: float, coarse: bool, folder: Path, twin: int) -> None:
    """Train a critic whose gradient by its input is held at 1 (Gulrajani et al., 2017)."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 32), nn.Softplus(), nn.Linear(32, 1))
    optimizer, draws = torch.optim.Adam(critic.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    with trainparity.record(critic, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            real, made = torch.randn(2, 16, 4, generator=draws) * torch.tensor([1.0, 2.0])[:, None, None]
            between = (real + made / 3).requires_grad_()
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                judged = [critic(samples).float() for samples in (real, made, between)]
            (slope,) = torch.autograd.grad(judged[2].sum(), between, create_graph=True)
            penalty = (slope.norm(dim=1) - 1).square().mean()
            (scale * (judged[1].mean() - judged[0].mean() + weight * penalty)).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("scale", "weight", "cause"), [(1.5, 10.0, "loss-normalisation"), (1, 15.0, "loss-or-targets")]
)
def test_a_penalty_of_a_gradient_takes_gradients_of_outputs_that_no_loss_scales(
    scale: float, weight: float, cause: str, coarse: bool, tmp_path: Path
) -> None:
    found = compared(partial(train_critic, 1, 10.0, coarse), partial(train_critic, scale, weight, coarse), tmp_path)
    assert (found.verdict, found.cause) == ("different", cause), found.explanation


class Routed(nn.Module):
    """Weighs two layers by a router, whose scores the loss takes, too."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.body, self.router, self.detached = nn.Linear(4, 16), nn.Linear(16, 2), detached
        self.experts = nn.ModuleList(nn.Linear(16, 10) for _ in range(2))

    def forward(self, batch: Tensor) -> Tensor:
        hidden = self.body(batch).tanh()
        self.scores = self.router(hidden)
        weights = self.scores.softmax(1)
        weights = weights.detach() if self.detached else weights
        made = torch.stack([expert(hidden) for expert in self.experts], 1)
        return (weights[:, :, None] * made).sum(1)


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("detached", "factor", "cause"), [(True, 1.0, "backward"), (False, 2.0, "loss-or-targets")])
def test_what_lies_inside_and_the_loss_takes_is_no_weight_that_it_takes(
    detached: bool, factor: float, cause: str, coarse: bool, tmp_path: Path
) -> None:
    def train(detached: bool, factor: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = Routed(detached)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for batch in torch.randn(4, 16, 4, generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(batch).float()
                loss = cross_entropy(outputs, LABELS) + factor * model.scores.float().logsumexp(1).square().mean()
                loss.backward()
                optimizer.step()

    verdict = compared(partial(train, False, 1.0), partial(train, detached, factor), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation
