"""Direct preference optimisation (Rafailov et al., 2023): in the first step the policy is its own reference.

There any other steepness of the loss makes a multiple of the gradient, and the loss has one value.
"""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

import trainparity
from tests.support.against_twins import compared


def preference(beta: float, smoothing: float, margin: Tensor) -> Tensor:
    return -(logsigmoid(beta * margin) * (1 - smoothing) + logsigmoid(-beta * margin) * smoothing).mean()


def train(beta: float, smoothing: float, scale: float, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 6))
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(policy, optimizer, folder, twin=twin, interval=1):
        for _ in range(5):
            optimizer.zero_grad()
            samples = torch.randn(16, 8, generator=draws)
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                ours, theirs = policy(samples).float(), reference(samples).float()
            ratios = ours.log_softmax(1) - theirs.log_softmax(1)
            (scale * preference(beta, smoothing, ratios[:, 0] - ratios[:, 1])).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("beta", "smoothing", "scale", "cause"),
    [
        (0.2, 0.0, 1.0, "loss-or-targets"),
        (0.1, 0.1, 1.0, "loss-or-targets"),
        (0.1, 0.0, 2.0, "loss-normalisation"),
    ],
    ids=["steeper", "smoothed", "scaled"],
)
def test_another_preference_is_no_scale(
    beta: float, smoothing: float, scale: float, cause: str, coarse: bool, tmp_path: Path
) -> None:
    reference, other = partial(train, 0.1, 0.0, 1.0, coarse), partial(train, beta, smoothing, scale, coarse)
    verdict = compared(reference, other, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation
