"""A model that is given what its loss needs, beside one whose loss the loop makes: that is no state."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared


class Model(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.body, self.head = nn.Linear(4, 32), nn.Linear(32, 10)

    def forward(self, samples: Tensor, labels: Tensor | None = None, count: Tensor | None = None) -> Tensor:
        outputs: Tensor = self.head(torch.tanh(self.scale * self.body(samples)))
        return outputs if labels is None else cross_entropy(outputs.float(), labels, reduction="sum") / count


def train(inside: bool, scale: float, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Model(scale)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            samples = torch.randn(16, 4, generator=draws)
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                made = model(samples, LABELS, torch.tensor(16)) if inside else model(samples)
            (made if inside else cross_entropy(made.float(), LABELS)).backward()
            optimizer.step()


FORMATS = pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])


@FORMATS
def test_where_the_loss_is_made_makes_no_other_training(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, False, 1.0, coarse), partial(train, True, 1.0, coarse), tmp_path)
    assert verdict.verdict in ("bitwise", "equivalent"), verdict.explanation


@FORMATS
def test_a_fault_in_the_forward_pass_is_named_there(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, False, 1.0, coarse), partial(train, True, 1.2, coarse), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation
    assert "output of head" in (verdict.explanation or "")


class Centres(nn.Module):
    """Makes a loss of its own beside its outputs, of parameters that nothing else is made with (Wen et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 32), nn.Linear(32, 10)
        self.centres = nn.Parameter(torch.randn(10, 32))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.body(samples))
        return self.head(hidden), hidden


def train_to_centres(weight: float, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Centres()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                outputs, hidden = model(torch.randn(16, 4, generator=draws))
            apart = (hidden.float().detach() - model.centres[LABELS]).square().sum(1).mean()
            (cross_entropy(outputs.float(), LABELS) + weight * apart).backward()
            optimizer.step()


@FORMATS
def test_the_weight_of_a_term_of_parameters_alone_is_the_losses(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train_to_centres, 0.01, coarse), partial(train_to_centres, 0.02, coarse), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
