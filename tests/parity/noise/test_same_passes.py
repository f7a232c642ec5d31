"""Twins that met kinks widen the floor: not where both runs' modules return the same bits."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss

import trainparity
from tests.support.against_twins import LABELS, compared
from trainparity.records.verdict import Verdict


class AtKinks(nn.Module):
    """Units of which most return zero where two inputs are the same: twins, whose weights were moved, lie beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, 10)
        with torch.no_grad():
            self.first.bias.zero_()
            self.first.weight[4:] = torch.rand(12, 1) * torch.tensor([1.0, -1.0, 0.0, 0.0])

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(samples).relu())  # type: ignore[no-any-return]


def train(parts: int, fault: str, folder: Path, twin: int) -> None:
    """Train 6 steps on samples of which two numbers are the same but in the first; a fault begins in the third."""
    torch.manual_seed(0)
    model = AtKinks()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for step, batch in enumerate(torch.randn(6, 16, 4, generator=torch.Generator().manual_seed(1))):
            batch[:, 1] = batch[:, 0] + (step == 0)
            wrong = fault if step > 1 else ""
            optimizer.zero_grad()
            for samples, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                outputs = model(samples)
                loss = nll_loss(log_softmax(outputs, 1), labels) if fault == "form" else cross_entropy(outputs, labels)
                (loss * (0.8 if wrong == "scaled" else 1.0) / parts).backward()
            if wrong == "changed":
                model.first.weight.grad[0] *= 0.8  # type: ignore[index]
            optimizer.step()


def judged(parts: int, fault: str, folder: Path) -> Verdict:
    return compared(partial(train, 1, ""), partial(train, parts, fault), folder)


@pytest.mark.parametrize(("parts", "fault"), [(1, "form"), (4, ""), (4, "form")])
def test_right_runs_part_by_rounding_alone(parts: int, fault: str, tmp_path: Path) -> None:
    verdict = judged(parts, fault, tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent", "cannot judge"), verdict.explanation


@pytest.mark.parametrize(("fault", "cause"), [("scaled", "loss-normalisation"), ("changed", "backward")])
def test_what_twins_met_excuses_no_fault_behind_the_same_passes(fault: str, cause: str, tmp_path: Path) -> None:
    verdict = judged(1, fault, tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", cause, 2), verdict.explanation


class Pooled(nn.Module):
    """Weighs a sequence by one score each, whose bias a softmax takes away: of its gradient rounding alone is left."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score, self.head = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 5)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.embed(samples))
        return self.head((self.score(hidden).softmax(1) * hidden).sum(1))  # type: ignore[no-any-return]


def train_pooled(seed: int, other_form: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(seed)
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draws = torch.Generator().manual_seed(seed + 1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(5):
            batch, labels = torch.randn(16, 6, 4, generator=draws), torch.randint(5, (16,), generator=draws)
            optimizer.zero_grad()
            outputs = model(batch)
            own = (outputs.logsumexp(1) - outputs.gather(1, labels[:, None])[:, 0]).mean()
            (own if other_form else cross_entropy(outputs, labels)).backward()
            optimizer.step()


@pytest.mark.parametrize("seed", [9, 15])
def test_what_is_left_of_one_number_by_chance_is_no_fault(seed: int, tmp_path: Path) -> None:
    """Of these seeds two twins came as near to the reference as a few last places."""
    verdict = compared(partial(train_pooled, seed, False), partial(train_pooled, seed, True), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation
