"""Loops as public examples have them: one output, one sample at a time, outputs used inside, layers of one's own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.parity.test_loops import Loop, judged, variant


class OneOutput(Loop):
    """A binary classifier: one number for each sample."""

    flipped = False

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1), nn.Sigmoid())

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        wanted = (labels > 1).float() if not self.flipped else (labels <= 1).float()
        return functional.binary_cross_entropy(self.model(data)[:, 0], wanted, reduction="none")


class Unbatched(Loop):
    """A policy that is asked for one state at a time, without a batch."""

    discount = 0.9

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        values = torch.stack([self.model(row).log_softmax(0)[0] for row in data])
        return values * self.discount**labels


class UsedInside(nn.Module):
    """Returns a code beside what it makes of it, as variational autoencoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.cut = nn.Linear(8, 3), nn.Linear(3, 8), False

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor]:
        code = self.encoder(data)
        return self.decoder(code.detach() if self.cut else code), code


class OutputUsedInside(Loop):
    """A loss of what is restored and of the code."""

    cut, weight = False, 0.1

    def build(self) -> nn.Module:
        model = UsedInside()
        model.cut = self.cut
        return model

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        restored, code = self.model(data)
        return (restored - data).square().mean(1) + self.weight * code.square().sum(1)


class Norm(nn.BatchNorm1d):
    """A BatchNorm by another name."""


class OwnNorm(Loop):
    """A classifier with a layer that extends one of PyTorch's."""

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), Norm(6), nn.ReLU(), nn.Linear(6, 4))

    def loss(self, data: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.model(data), labels, reduction="none")


def projected(self: Loop, step: int) -> None:
    """Change weights past autograd's version counters, between two steps."""
    if step == 2:
        next(self.model.parameters()).data.mul_(0.5)


class OwnStep(torch.optim.SGD):
    """An optimizer with a step of its own behind PyTorch's options."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad.sign(), alpha=-group["lr"])


def with_class(made: type[torch.optim.Optimizer]) -> object:
    renamed = type("Own", (made,), {})
    return staticmethod(lambda parameters: renamed(parameters, lr=1e-2))


FAULTS: dict[str, tuple[type[Loop], dict[str, object], dict[str, object], str]] = {
    "labels of one output": (OneOutput, {}, {"flipped": True}, "loss-or-targets"),
    "a discount": (Unbatched, {}, {"discount": 0.5}, "loss-or-targets"),
    "a detach between two outputs": (OutputUsedInside, {}, {"cut": True}, "backward"),
    "the loss of one of them": (OutputUsedInside, {}, {"weight": 1.0}, "loss-or-targets"),
    "a norm over fewer samples": (OwnNorm, {}, {"parts": 4}, "batchnorm-statistics"),
    "weights changed past autograd": (OneOutput, {}, {"between": projected}, "weights-not-loaded"),
    "another rule for the update": (
        OneOutput, {"optimizer": with_class(torch.optim.SGD)}, {"optimizer": with_class(OwnStep)}, "update",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str, tmp_path: Path) -> None:
    shape, reference, change, cause = FAULTS[name]
    found = judged(tmp_path, variant(shape, **reference), variant(shape, **change))
    assert (found.verdict, found.cause) == ("different", cause), found.explanation
    assert str(tmp_path / "b") in str(found.explanation) or cause in ("batchnorm-statistics", "weights-not-loaded")


def compiled(shape: type[Loop], **changes: object) -> Loop:
    return variant(shape, build=lambda self: torch.compile(shape.build(self), backend="eager"), **changes)


def test_what_a_compiled_model_is_given_and_returns_is_looked_at_from_outside(tmp_path: Path) -> None:
    found = judged(tmp_path, OneOutput(), compiled(OneOutput, flipped=True))
    assert found.cause == "loss-or-targets", found.explanation
    found = judged(tmp_path, OwnNorm(), compiled(OwnNorm, parts=4))
    assert found.cause == "batchnorm-statistics", found.explanation
    assert judged(tmp_path, compiled(OneOutput), compiled(OneOutput, parts=4)).verdict == "equivalent"


def test_compiled_code_that_draws_random_numbers_is_not_taken_for_another_function(tmp_path: Path) -> None:
    def dropping(self: Loop) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 1), nn.Sigmoid())

    def eager_backend(graph: Any, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            torch.rand(1)  # as a compiled mask is another one than eager code's
            return graph(*given)

        return run

    other = variant(OneOutput, build=lambda self: torch.compile(dropping(self), backend=eager_backend))
    found = judged(tmp_path, variant(OneOutput, build=dropping), other)
    assert (found.verdict, found.cause) == ("different", "randomness"), found.explanation


@pytest.mark.parametrize("shape", [OneOutput, Unbatched, OutputUsedInside])
def test_they_may_be_cut(shape: type[Loop], tmp_path: Path) -> None:
    assert judged(tmp_path, shape(), variant(shape, parts=4)).verdict == "equivalent"
