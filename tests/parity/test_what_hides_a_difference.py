"""Weights of zero, dropout that keeps all and another form of the outputs hide where runs part, or that they do not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support import against_twins
from tests.support.against_twins import compared
from trainparity.records.verdict import Verdict

Function = Callable[[Tensor], Tensor]
LABELS = torch.arange(16) % 10


class Residual(nn.Module):
    """A classifier whose block adds nothing yet, as its last weights are zero."""

    def __init__(self, function: Function, returns: Function) -> None:
        super().__init__()
        self.inner, self.outer, self.head = nn.Linear(4, 8), nn.Linear(8, 4, bias=False), nn.Linear(4, 10)
        nn.init.zeros_(self.outer.weight)
        self.function, self.returns = function, returns

    def forward(self, values: Tensor) -> Tensor:
        return self.returns(self.head(values + self.outer(self.function(self.inner(values)))))


class Times(nn.Module):
    """Multiplies what it is given."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, values: Tensor) -> Tensor:
        return values * self.factor


class Adapted(nn.Module):
    """A frozen classifier with a trained adapter that adds nothing yet, as its last weights are zero (LoRA)."""

    def __init__(self, scaling: float) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(4, 10), nn.Linear(4, 2, bias=False), nn.Linear(2, 10, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.up.weight)
        self.scaling = scaling

    def forward(self, values: Tensor) -> Tensor:
        output: Tensor = self.base(values) + self.scaling * self.up(self.down(values))
        return output


class AdaptedByParameters(nn.Module):
    """The same with weights that no module of their own holds, so that none sees the scaled gradient."""

    def __init__(self, scaling: float, merged: bool = False) -> None:
        super().__init__()
        self.base, self.scaling, self.merged = nn.Linear(4, 10).requires_grad_(False), scaling, merged
        self.down, self.up = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.zeros(10, 4))

    def forward(self, values: Tensor) -> Tensor:
        if self.merged:
            weight = self.base.weight + self.scaling * (self.up @ self.down)
            return nn.functional.linear(values, weight, self.base.bias)
        output: Tensor = self.base(values) + self.scaling * (values @ self.down.T @ self.up.T)
        return output


def train(make: Callable[[], nn.Module], loss: Function, coarse: bool, folder: Path, twin: int) -> None:
    """Train a new model, whose loss is computed in single precision."""
    against_twins.train(make, lambda outputs: loss(outputs.float()), coarse, folder, twin)


cross_entropy = partial(nn.functional.cross_entropy, target=LABELS)
nll = partial(nn.functional.nll_loss, target=LABELS)
log_softmax = partial(torch.log_softmax, dim=1)
logits = partial(Residual, torch.relu, torch.Tensor.float)
log_probabilities = partial(Residual, torch.relu, log_softmax)


def test_another_function_in_front_of_weights_of_zero_is_the_forward_pass(tmp_path: Path) -> None:
    other = partial(Residual, nn.functional.gelu, torch.Tensor.float)
    verdict = compared(*(partial(train, make, cross_entropy, False) for make in (logits, other)), tmp_path)
    assert verdict.cause == "forward", verdict.explanation
    assert "what outer is given, or makes of it, differs" in str(verdict.explanation)
    assert "these weights are zero" in str(verdict.explanation)


def test_another_function_in_front_of_a_dropout_that_keeps_all_is_the_forward_pass(tmp_path: Path) -> None:
    def make(factor: float) -> nn.Module:
        return nn.Sequential(Times(factor), nn.Dropout(0.0), nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 10))

    verdict = compared(*(partial(train, partial(make, f), cross_entropy, False) for f in (1.0, 1.5)), tmp_path)
    assert verdict.cause == "forward", verdict.explanation


@pytest.mark.parametrize("coarse", [False, True])
def test_another_scale_of_an_adapter_that_adds_nothing_yet_is_not_that_of_the_loss(
    tmp_path: Path, coarse: bool
) -> None:
    runs = (partial(train, partial(Adapted, scaling), cross_entropy, coarse) for scaling in (2.0, 5.0))
    verdict = compared(*runs, tmp_path)
    assert verdict.cause == "forward", verdict.explanation
    assert verdict.evidence["modules"] == ["up"]


@pytest.mark.parametrize(("scaling", "coarse"), [(5.0, False), (1.875, False), (5.0, True), (1.95, True)])
def test_such_a_scale_is_not_that_of_the_loss_where_no_module_sees_it(
    tmp_path: Path, scaling: float, coarse: bool
) -> None:
    runs = (partial(train, partial(AdaptedByParameters, scale), cross_entropy, coarse) for scale in (2.0, scaling))
    verdict = compared(*runs, tmp_path)
    assert verdict.cause == "forward", verdict.explanation
    assert verdict.evidence["parameters"] == ["up"]


def test_a_scale_that_is_merged_into_the_weights_is_the_same_training(tmp_path: Path) -> None:
    runs = (partial(train, partial(AdaptedByParameters, 2.0, how), cross_entropy, True) for how in (False, True))
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def in_bf16(folder: Path, make: Callable[[], nn.Module], loss: Function) -> Verdict:
    """Compare with a training on log-probabilities in bf16, which hides more in gradients than in outputs."""
    return compared(partial(train, log_probabilities, nll, True), partial(train, make, loss, True), folder)


@pytest.mark.parametrize("make", [logits, log_probabilities])
def test_another_form_of_the_outputs_is_the_same_training(tmp_path: Path, make: Callable[[], nn.Module]) -> None:
    verdict = in_bf16(tmp_path, make, cross_entropy)
    assert verdict.verdict == "equivalent", verdict.explanation


class Bare(nn.Module):
    """Has no modules inside, and returns log-probabilities, which bf16 rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Parameter(0.5 * torch.randn(4, 16)), nn.Parameter(0.3 * torch.randn(16, 10))

    def forward(self, values: Tensor) -> Tensor:
        return ((values @ self.first).tanh() @ self.last).float().log_softmax(1).bfloat16()


def doubted(outputs: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, LABELS, label_smoothing=0.1)


def ends_with_log_probabilities() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 10), nn.LogSoftmax(1))


@pytest.mark.parametrize("make", [Bare, ends_with_log_probabilities])
@pytest.mark.parametrize(("loss", "verdict"), [(cross_entropy, "equivalent"), (doubted, "different")])
def test_another_form_of_the_outputs_is_known_whatever_returns_them(
    tmp_path: Path, make: Callable[[], nn.Module], loss: Function, verdict: str
) -> None:
    """What comes back to the last module, or to the model where it has none inside, is another one, too."""
    found = compared(partial(train, make, nll, True), partial(train, make, loss, True), tmp_path)
    assert found.verdict == verdict, found.explanation


def train_log_probabilities(parts: int, loss: Callable[[Tensor, Tensor], Tensor]) -> against_twins.Training:
    """Train in so many passes under bf16 on log-probabilities that the model returns."""
    return partial(
        against_twins.train_in_parts, parts, True, scale=1 / parts, before_update=lambda model: None, loss=loss,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3), make=ends_with_log_probabilities,
    )  # fmt: skip


def test_another_form_of_the_outputs_is_known_in_another_cut(tmp_path: Path) -> None:
    reference = train_log_probabilities(1, nn.functional.nll_loss)
    verdict = compared(reference, train_log_probabilities(4, nn.functional.cross_entropy), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def test_another_form_of_the_outputs_does_not_hide_other_labels(tmp_path: Path) -> None:
    labels = LABELS.clone()
    labels[3], labels[4] = LABELS[4], LABELS[3]
    assert in_bf16(tmp_path, logits, partial(nn.functional.cross_entropy, target=labels)).verdict == "different"


class Actor(nn.Module):
    """Returns scores, and of each sample the entropy that they have, which is near its largest."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 10))
        with torch.no_grad():
            self.body[2].weight.mul_(1e-2)

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.body(samples).float()
        odds = scores.log_softmax(1)
        return scores, -(odds.exp() * odds).sum(1)


def actors_loss(bonus: float, made: tuple[Tensor, Tensor]) -> Tensor:
    """As of PPO (Schulman et al., 2017), whose bonus is an entropy's."""
    scores, entropy = made
    return nn.functional.cross_entropy(scores, LABELS) - bonus * entropy.mean()


@pytest.mark.parametrize("bonus", [-0.01, 0.02])
def test_another_weight_of_a_small_term_is_no_other_form_of_the_loss(bonus: float, tmp_path: Path) -> None:
    """What comes back inside of the model is within the rounding of bf16, and has the same bits at other outputs."""
    runs = (partial(against_twins.train, Actor, partial(actors_loss, weight), True) for weight in (0.01, bonus))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict
    assert verdict.distance_over_floor < verdict.margin
    assert "that by (output) agrees" in str(verdict.explanation)


def _train_stored_in(stored: torch.dtype, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 10)).to(stored)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                outputs = model(torch.randn(16, 4, generator=draws).to(stored))
            outputs.float().square().mean().backward()
            optimizer.step()


@pytest.mark.parametrize(("left", "right"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_weights_stored_in_another_format_are_another_precision(
    left: torch.dtype, right: torch.dtype, tmp_path: Path
) -> None:
    found = compared(partial(_train_stored_in, left), partial(_train_stored_in, right), tmp_path)
    assert (found.verdict, found.cause) == ("different", "precision"), found


def test_gradients_that_hooks_change_are_not_hidden_by_weights_of_zero(tmp_path: Path) -> None:
    def centre(weight: Tensor) -> None:
        assert weight.grad is not None
        weight.grad -= weight.grad.mean(1, keepdim=True)

    def centred(folder: Path, twin: int) -> None:
        def make() -> nn.Module:
            model = logits()
            model.outer.weight.register_post_accumulate_grad_hook(centre)
            return model

        train(make, cross_entropy, False, folder, twin)

    verdict = compared(partial(train, logits, cross_entropy, False), centred, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "backward"), verdict.explanation
