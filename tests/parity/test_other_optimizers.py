"""Another class of optimizer, and gradients that a loop shortens by hand."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import trainparity
from tests.support.against_twins import LABELS, compared, train_in_parts
from trainparity.parity.compare import compare_folders

Made = Callable[[nn.Module], torch.optim.Optimizer]


def adadelta(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(model.parameters(), lr=1.0, weight_decay=0.0)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.0)


class OwnAdam(torch.optim.Adam):
    """Adam by another name."""


def own_adam(model: nn.Module) -> torch.optim.Optimizer:
    return OwnAdam(model.parameters(), lr=0.02, weight_decay=0.0)


@pytest.mark.parametrize(
    ("reference", "other", "cause"), [(adadelta, adam, "optimizer-state"), (adam, own_adam, "learning-rate")]
)
def test_another_class_is_named_before_its_learning_rate_unless_that_explains_all(
    reference: Made, other: Made, cause: str, tmp_path: Path
) -> None:
    runs = (
        partial(train_in_parts, 1, False, optimizer=made, scale=1.0, before_update=lambda model: None)
        for made in (reference, other)
    )
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", cause), verdict.explanation


class OwnSGD(torch.optim.SGD):
    """SGD by another name."""


class Both:
    """Optimizers that step together, of which the first holds the weights and the second the biases."""

    def __init__(self, first: type[torch.optim.Optimizer], second: type[torch.optim.Optimizer]) -> None:
        self.classes = first, second

    def __call__(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        groups = [[p for p in model.parameters() if (p.ndim > 1) == weights] for weights in (True, False)]
        return [made(held, lr=0.01) for made, held in zip(self.classes, groups, strict=True)]  # type: ignore[call-arg]


def train_with_both(both: Both, parts: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    optimizers = both(model)
    with trainparity.record(model, optimizers, folder, twin=twin, interval=1):
        for batch in torch.randn(4, 16, 4, generator=torch.Generator().manual_seed(1)):
            model.zero_grad()
            for some, labels in zip(batch.chunk(parts), LABELS.chunk(parts), strict=True):
                cross_entropy(model(some), labels).div(parts).backward()
            for optimizer in optimizers:
                optimizer.step()


def test_classes_by_other_names_are_the_same_unless_they_are_exchanged(tmp_path: Path) -> None:
    """As of an optimizer for several devices, whose class has another name."""
    reference = partial(train_with_both, Both(torch.optim.SGD, torch.optim.Adam), 1)
    renamed = compared(reference, partial(train_with_both, Both(OwnSGD, OwnAdam), 2), tmp_path)
    assert renamed.verdict == "equivalent", renamed.explanation
    train_with_both(Both(torch.optim.Adam, torch.optim.SGD), 1, tmp_path / "exchanged", 0)
    exchanged = compare_folders(tmp_path / "reference", tmp_path / "exchanged")
    assert (exchanged.verdict, exchanged.cause) == ("different", "optimizer-state"), exchanged.explanation
    assert "Adam" in (exchanged.explanation or "")


def shorten_each(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.mul_(0.02 / parameter.grad.norm())
    model[0].bias.grad = None  # type: ignore[index, union-attr]


def shorten_all(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.02)
    model[0].bias.grad = None  # type: ignore[index, union-attr]


def test_gradients_shortened_each_by_hand_are_clipping_where_one_is_dropped(tmp_path: Path) -> None:
    runs = (
        partial(train_in_parts, 1, False, optimizer=adam, scale=1.0, before_update=change)
        for change in (shorten_each, shorten_all)
    )
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "clipping"), verdict.explanation


def lengthen_each(model: nn.Module) -> None:
    for number, parameter in enumerate(model.parameters()):
        assert parameter.grad is not None
        parameter.grad.mul_(1.0 + 0.5 * number)


def test_gradients_lengthened_by_hand_are_no_clipping(tmp_path: Path) -> None:
    runs = (
        partial(train_in_parts, 1, False, optimizer=adam, scale=1.0, before_update=change)
        for change in (lambda model: None, lengthen_each)
    )
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "different" and verdict.cause != "clipping", verdict.explanation


class Estimating(torch.optim.Optimizer):
    """Keeps what it estimates of its gradients as an option, as Prodigy and D-Adaptation do."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, beta: float) -> None:
        super().__init__(parameters, {"lr": 0.01, "estimate": 1e-6, "beta": beta})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        seen = 1e-4 + float(group["params"][-1].grad.sum())  # that of softmax's scores cancels: rounding is left
        group["estimate"] = group["beta"] * group["estimate"] + seen
        for parameter in group["params"]:
            parameter -= group["lr"] * (1 + 0.01 * group["estimate"]) * parameter.grad


@pytest.mark.parametrize(("parts", "beta", "expected"), [(4, 0.9, "equivalent"), (1, 0.8, "different")])
def test_an_option_that_is_computed_from_gradients_is_as_exact_as_they_are(
    parts: int, beta: float, expected: str, tmp_path: Path
) -> None:
    runs = (
        partial(
            train_in_parts,
            cut,
            False,
            optimizer=lambda model, beta=of: Estimating(model.parameters(), beta=beta),
            scale=1 / cut,
            before_update=lambda model: None,
        )
        for cut, of in ((1, 0.9), (parts, beta))
    )
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == expected, verdict.explanation
    assert verdict.cause == ("optimizer-state" if expected == "different" else None)


def _train_by_two(folder: Path, twin: int, *, matrices_alone: bool) -> None:
    """Train with SGD for matrices and Adam for all else, and the last bias by the one or the other."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
    first, bias, last, other = model.parameters()
    updates = [
        torch.optim.SGD([first, last] if matrices_alone else [first, last, other], lr=0.1),
        torch.optim.Adam([bias, other] if matrices_alone else [bias], lr=0.01),
    ]
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, updates, folder, twin=twin, interval=1):
        for _ in range(4):
            for one in updates:
                one.zero_grad()
            cross_entropy(model(torch.randn(16, 4, generator=draws)), LABELS).backward()
            for one in updates:
                one.step()


def test_a_parameter_of_another_member_is_told_from_its_learning_rate(tmp_path: Path) -> None:
    verdict = compared(*(partial(_train_by_two, matrices_alone=alone) for alone in (True, False)), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "optimizer-state"), verdict.explanation
    assert str(verdict.explanation).startswith("2.bias: updated by Adam in ")
    assert compared(*[partial(_train_by_two, matrices_alone=True)] * 2, tmp_path / "same").verdict == "bitwise"


def resumed(lost: Sequence[str], model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of some steps that were made before, without some of its moments."""
    updates = adam(model)
    for _ in range(3):
        updates.zero_grad()
        cross_entropy(model(torch.randn(16, 4)), LABELS).backward()
        updates.step()
    for parameter, state in list(updates.state.items()):
        for name in lost:
            if name in state:
                state[name].zero_()
            elif parameter is next(model.parameters()):  # of which all is lost
                del updates.state[parameter]
    return updates


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("lost", [["exp_avg"], ["exp_avg_sq"], ["all of the first weight"]])
def test_a_moment_that_is_lost_on_resume_is_one_of_the_state(lost: list[str], coarse: bool, tmp_path: Path) -> None:
    """Though the second one is nothing beside the first in the length of both."""
    trained = partial(train_in_parts, 1, coarse, scale=1.0, before_update=lambda model: None)
    verdict = compared(*(partial(trained, optimizer=partial(resumed, names)) for names in ([], lost)), tmp_path)
    assert (verdict.verdict, verdict.cause, verdict.step) == ("different", "optimizer-state", 0), verdict.explanation
    assert "lost on resume" in str(verdict.explanation)
