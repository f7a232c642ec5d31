"""Functions between modules, and of the loss: what no module returns is placed by what modules are given."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict

Function = Callable[[Tensor], Tensor]
LABELS = torch.arange(16) % 10


class Dropping(nn.Module):
    """A classifier with a function before its dropout."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.hidden, self.dropout, self.head = nn.Linear(4, 12), nn.Dropout(0.5), nn.Linear(12, 10)
        self.function = function

    def forward(self, values: Tensor) -> Tensor:
        return torch.log_softmax(self.head(self.dropout(self.function(self.hidden(values)))), dim=1)


def judged(folder: Path, function: Function = torch.relu, labels: Tensor = LABELS) -> Verdict:
    """Compare a training with another function, or other labels, with one that has relu and LABELS."""
    return compared(partial(_train, torch.relu, LABELS), partial(_train, function, labels), folder)


def _train(function: Function, labels: Tensor, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Dropping(function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.nll_loss(model(torch.randn(16, 4, generator=draws)), labels).backward()
            optimizer.step()


def test_another_function_before_dropout_is_no_other_randomness(tmp_path: Path) -> None:
    verdict = judged(tmp_path, function=nn.functional.gelu)
    assert verdict.cause == "forward", verdict.explanation
    assert "what dropout is given differs" in str(verdict.explanation)


def test_a_forward_pass_that_draws_before_dropout_is_randomness(tmp_path: Path) -> None:
    verdict = judged(tmp_path, function=lambda values: torch.relu(values) + 0 * torch.rand_like(values))
    assert verdict.cause == "randomness", verdict.explanation


def test_two_labels_that_change_places_change_the_gradient_of_the_outputs(tmp_path: Path) -> None:
    labels = LABELS.clone()
    labels[3], labels[4] = LABELS[4], LABELS[3]
    verdict = judged(tmp_path, labels=labels)
    assert verdict.cause == "loss-or-targets", verdict.explanation
    assert "the gradient of the loss by it is another one" in str(verdict.explanation)
