"""Loops that ask for the gradient of the samples, as to attack a model with them: no parameter trains with it."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, classifier, compared


def _train(folder: Path, twin: int, *, coarse: bool, parts: int = 1, weaker: float = 1.0, divided: bool = True) -> None:
    """Train on samples that were moved along the gradient of their loss (Goodfellow et al., 2014).

    Args:
        folder: Where it is recorded.
        twin: The twin's number.
        coarse: Whether the model is under bf16 autocast.
        parts: Micro-batches of a step, each attacked for itself: by the sign of the gradient of its mean loss.
        weaker: What the attack is multiplied with.
        divided: Whether each mean loss that is trained with is divided by the parts.
    """
    torch.manual_seed(0)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    draws = torch.Generator().manual_seed(1)

    def loss(given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
            scores: torch.Tensor = model(given)
        return cross_entropy(scores.float(), labels)

    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.randn(16, 4, generator=draws)
            for samples, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                (gradient,) = torch.autograd.grad(loss(samples.requires_grad_(), labels), [samples])
                attacked = (samples + 0.1 * weaker * gradient.sign()).detach()
                (loss(attacked, labels) / (parts if divided else 1)).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize(
    ("parts", "weaker", "divided", "cause"),
    [(2, 1.0, True, None), (2, 1.0, False, "loss-normalisation"), (1, 0.5, True, "samples")],
)
def test_the_loss_of_an_attack_may_have_another_scale(
    parts: int, weaker: float, divided: bool, cause: str | None, coarse: bool, tmp_path: Path
) -> None:
    attacked = partial(_train, coarse=coarse, parts=parts, weaker=weaker, divided=divided)
    verdict = compared(partial(_train, coarse=coarse), attacked, tmp_path)
    assert verdict.cause == cause, verdict
    assert verdict.verdict == ("different" if cause else "equivalent"), verdict.reason
