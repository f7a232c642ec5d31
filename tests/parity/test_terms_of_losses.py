"""Losses of several terms: one is left out, weighs otherwise, or takes parameters by itself."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trainparity
from tests.support.against_twins import LABELS, compared

FORMATS = pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])


class Tasks(nn.Module):
    """Two tasks on one trunk, and the log-variances that weigh them (Kendall et al., 2018): zero at first."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.first, self.second = nn.Linear(4, 32), nn.Linear(32, 10), nn.Linear(32, 1)
        self.log_variances = nn.Parameter(torch.zeros(2))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.trunk(samples))
        return self.first(hidden), self.second(hidden)


Loss = Callable[[Tasks, Tensor, Tensor], Tensor]


def train(loss: Loss, coarse: bool, folder: Path, twin: int, *, frozen: str = "") -> None:
    torch.manual_seed(0)
    model = Tasks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not frozen or not name.startswith(frozen))
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                first, second = model(torch.randn(16, 4, generator=draws))
            of_first = nn.functional.cross_entropy(first.float(), LABELS)
            of_second = (second.float().squeeze(1) - LABELS / 10).square().mean()
            loss(model, of_first, of_second).backward()
            optimizer.step()


def weighed(sign: float, model: Tasks, first: Tensor, second: Tensor) -> Tensor:
    weights = (-model.log_variances).exp()
    return weights[0] * first + weights[1] * second + sign * model.log_variances.sum() / 2


@FORMATS
def test_what_the_loss_takes_by_itself_is_no_part_of_the_forward_pass(coarse: bool, tmp_path: Path) -> None:
    reference, test = (partial(train, partial(weighed, sign), coarse) for sign in (1.0, -1.0))
    verdict = compared(reference, test, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
    assert "the loss takes log_variances by itself" in (verdict.explanation or "")


def added(model: Tasks, first: Tensor, second: Tensor) -> Tensor:
    return first + 0.01 * second + 0 * model.log_variances.sum()


def without_the_second(model: Tasks, first: Tensor, second: Tensor) -> Tensor:
    return first + 0 * model.log_variances.sum()


@FORMATS
def test_a_term_that_is_left_out_is_the_losses_and_not_its_heads(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, added, coarse), partial(train, without_the_second, coarse), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
    assert "no gradient comes back to (output).1" in (verdict.explanation or "")


@FORMATS
def test_a_head_that_is_frozen_is_named(coarse: bool, tmp_path: Path) -> None:
    verdict = compared(partial(train, added, coarse), partial(train, added, coarse, frozen="second"), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "frozen-parameter"), verdict.explanation


def in_parts(sizes: list[int], own_mean: bool, power: int, coarse: bool, folder: Path, twin: int) -> None:
    """Train in parts of such sizes; the second task's loss is a mean over all samples, or over each part's own."""
    torch.manual_seed(0)
    model = Tasks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            samples = torch.randn(16, 4, generator=draws)
            for some, labels in zip(samples.split(sizes), LABELS.split(sizes), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    first, second = model(some)
                of_first = nn.functional.cross_entropy(first.float(), labels, reduction="sum") / 16
                of_second = (second.float().squeeze(1) - labels / 10).abs().pow(power).sum()
                mean = of_second / (len(sizes) * len(some) if own_mean else 16)
                (of_first + mean + 0 * model.log_variances.sum()).backward()
            optimizer.step()


@FORMATS
@pytest.mark.parametrize(
    ("own_mean", "power", "cause"), [(False, 2, None), (True, 2, "loss-normalisation"), (False, 3, "loss-or-targets")]
)
def test_a_mean_of_means_in_one_term_is_named(
    own_mean: bool, power: int, cause: str | None, coarse: bool, tmp_path: Path
) -> None:
    reference, test = partial(in_parts, [16], False, 2, coarse), partial(in_parts, [5, 11], own_mean, power, coarse)
    verdict = compared(reference, test, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different" if cause else "equivalent", cause), verdict.explanation
    if own_mean and not coarse:
        assert "in the term of the loss that takes (output).1" in (verdict.explanation or "")


def small_term(weight: float, folder: Path, twin: int) -> None:
    """Train half of the outputs by a term that is next to nothing in the gradient, and as much as the rest to Adam."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 16))
    optimizer, draws = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                made = model(torch.randn(256, 8, generator=draws)).float() - 3
            (made[:, :2].square().mean() + weight * made[:, 2:].square().mean()).backward()
            optimizer.step()


def test_a_small_term_that_is_gone_is_no_other_update_of_the_same_gradients(tmp_path: Path) -> None:
    found = compared(partial(small_term, 1e-4), partial(small_term, 0.0), tmp_path)
    assert found.verdict == "different" and found.cause != "update", found.explanation


class Residual(nn.Module):
    """Returns nearly the same for all classes at first: smoothed labels then give nearly a multiple of the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 32), nn.Linear(32, 32), nn.LayerNorm(32)
        self.last = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = nn.functional.gelu(self.first(images))
        scores: Tensor = self.last(features + self.norm(self.second(features)).relu())
        return scores


def _smoothed(smoothing: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Residual()
    optimizer, draws = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.Generator().manual_seed(5)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            images, labels = torch.randn(16, 8, generator=draws), torch.randint(10, (16,), generator=draws)
            for some, wanted in zip(images.chunk(4), labels.chunk(4), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(some)
                loss = nn.functional.cross_entropy(outputs.float(), wanted, label_smoothing=smoothing)
                (loss / 4).backward()
            optimizer.step()


def test_a_loss_that_weights_of_micro_batches_nearly_explain_is_another_loss(tmp_path: Path) -> None:
    verdict = compared(partial(_smoothed, 0.0), partial(_smoothed, 0.05), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation
