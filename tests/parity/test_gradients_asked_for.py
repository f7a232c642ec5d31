"""Loops that ask `torch.autograd.grad` for gradients: beside the training, to log or weigh them, or to train with."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


def _train(
    folder: Path, twin: int, *,
    coarse: bool, parts: int = 1, asked: str = "never", factor: float = 1.0, weight: float = 0.1,
) -> None:  # fmt: skip
    """Train a classifier for 4 steps of 16 samples [4] in so many micro-batches, with a loss of two terms.

    Args:
        folder: Where it is recorded.
        twin: The twin's number.
        coarse: Whether the model is under bf16 autocast.
        parts: Micro-batches of a step.
        asked: When the loop asks what the gradient of each term is: never, always, in the last micro-batch alone, or
            to train with their sum, or with what of the second does not contradict the first (PCGrad).
        factor: That of the loss.
        weight: That of the second term.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            batch = torch.randn(16, 4, generator=draws)
            for part, (images, labels) in enumerate(zip(batch.chunk(parts), LABELS.chunk(parts), strict=True), 1):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(images).float()
                terms = [factor * cross_entropy(outputs, labels) / parts, weight * outputs.square().mean() / parts]
                if asked in ("sum", "surgery"):
                    _add(list(model.parameters()), terms, project=asked == "surgery")
                    continue
                if asked == "always" or (asked == "last" and part == parts):
                    for term in terms:
                        torch.autograd.grad(term, list(model.parameters()), retain_graph=True)
                sum(terms).backward()
            optimizer.step()


def _add(parameters: list[nn.Parameter], terms: list[Tensor], *, project: bool) -> None:
    """Add the gradients of terms to what parameters hold, each as far as it does not contradict the one before."""
    first, second = (torch.autograd.grad(term, parameters, retain_graph=True) for term in terms)
    flat, other = (torch.cat([part.flatten() for part in each]) for each in (first, second))
    along = float(flat @ other / flat.square().sum()) if project and flat @ other < 0 else 0.0
    for parameter, of_first, of_second in zip(parameters, first, second, strict=True):
        held = 0 if parameter.grad is None else parameter.grad
        parameter.grad = held + of_first + of_second - along * of_first


@pytest.mark.parametrize(
    ("asked", "then"), [("never", "last"), ("always", "last"), ("always", "never"), ("never", "sum")]
)
def test_asking_is_the_same_training(asked: str, then: str, tmp_path: Path) -> None:
    runs = [partial(_train, coarse=True, asked=asked), partial(_train, coarse=True, asked=then, parts=4)]
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


@pytest.mark.parametrize(("asked", "then", "coarse"), [("never", "always", True), ("sum", "sum", False)])
@pytest.mark.parametrize(
    ("change", "cause"), [({"factor": 2.0, "weight": 0.2}, "loss-normalisation"), ({"weight": 0.4}, "loss-or-targets")]
)
def test_a_fault_beside_it_is_named(
    asked: str, then: str, coarse: bool, change: dict[str, float], cause: str, tmp_path: Path
) -> None:
    runs = [partial(_train, coarse=coarse, asked=asked), partial(_train, coarse=coarse, asked=then, **change)]
    assert compared(*runs, tmp_path).cause == cause


def test_surgery_is_told_from_another_loss(tmp_path: Path) -> None:
    run = partial(_train, coarse=True, weight=-1.0)
    verdict = compared(partial(run, asked="sum"), partial(run, asked="surgery"), tmp_path)
    assert verdict.cause == "backward"
    assert "changed after backward has made it; what backward makes agrees" in str(verdict.explanation)
