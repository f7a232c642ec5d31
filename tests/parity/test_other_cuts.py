"""Runs that cut a batch into other micro-batches, as contiguous ones and those of a sampler that deals samples out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

import trainparity
from tests.support.against_twins import compared

SAMPLES, LONGEST = 16, 12
LENGTHS = torch.randint(1, LONGEST + 1, (SAMPLES,), generator=torch.Generator().manual_seed(3))


def contiguous(values: Tensor) -> list[Tensor]:
    return list(values.chunk(2))


def dealt_out(values: Tensor) -> list[Tensor]:
    return [values[0::2], values[1::2]]


def train(dealt: bool, of_means: bool, coarse: bool, folder: Path, twin: int) -> None:
    """Predict the class of each token, of sequences of unequal length; the loss is the mean over all, or of means."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    cut = dealt_out if dealt else contiguous
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            tokens = torch.randn(SAMPLES, LONGEST, 6, generator=draws)
            classes = torch.randint(5, (SAMPLES, LONGEST), generator=draws)
            classes[torch.arange(LONGEST) >= LENGTHS[:, None]] = -100
            optimizer.zero_grad()
            for part, wanted in zip(cut(tokens), cut(classes), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    scores = model(part).float()
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="sum")
                count = 2 * int((wanted >= 0).sum()) if of_means else int(LENGTHS.sum())
                (loss / count).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("of_means", [False, True])
def test_a_mean_of_means_is_named_where_no_micro_batch_is_in_both_runs(
    of_means: bool, coarse: bool, tmp_path: Path
) -> None:
    verdict = compared(partial(train, False, False, coarse), partial(train, True, of_means, coarse), tmp_path)
    expected = ("different", "loss-normalisation") if of_means else ("equivalent", None)
    assert (verdict.verdict, verdict.cause) == expected, verdict.explanation


def train_normalised(parts: int, folder: Path, twin: int) -> None:
    """Train a network with BatchNorm, all of it in bf16, in so many micro-batches a step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8), nn.ReLU(),
        nn.Flatten(), nn.Linear(8 * 16, 5),
    ).bfloat16()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            images = (2 * torch.randn(16, 3, 8, 8, generator=draws) + 0.5).bfloat16()
            classes = torch.randint(5, (16,), generator=draws)
            optimizer.zero_grad()
            for some, wanted in zip(images.chunk(parts), classes.chunk(parts), strict=True):
                (nn.functional.cross_entropy(model(some).float(), wanted) / parts).backward()
            optimizer.step()


def test_batchnorm_over_smaller_batches_is_named_though_its_outputs_cancel(tmp_path: Path) -> None:
    verdict = compared(partial(train_normalised, 1), partial(train_normalised, 2), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "batchnorm-statistics"), verdict.explanation
    assert str(verdict.explanation).startswith("1 normalises over 16 samples"), verdict.explanation


def train_without_statistics(size: int, parts: int, folder: Path, twin: int) -> None:
    """Tell pixels under autocast, with BatchNorm that keeps nothing of what it has seen."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16, track_running_stats=False), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16, track_running_stats=False), nn.ReLU(),
        nn.Conv2d(16, 1, 1),
    )  # fmt: skip
    optimizer, draws = torch.optim.Adam(model.parameters(), lr=1e-4), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            images = torch.randn(12, 3, size, size, generator=draws)
            optimizer.zero_grad()
            for some in images.chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    made = model(some)
                wanted = (some.mean(1, keepdim=True) > 0).float()
                (nn.functional.binary_cross_entropy_with_logits(made.float(), wanted) / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("size", [8, 16, 24])
def test_batchnorm_over_smaller_batches_is_named_within_the_floor(size: int, tmp_path: Path) -> None:
    """Neither what it returns nor a statistic is beyond it: what other sums of equal rows make is less."""
    verdict = compared(partial(train_without_statistics, size, 1), partial(train_without_statistics, size, 2), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "batchnorm-statistics"), verdict.explanation


def train_one_by_one(loss: Callable[[Tensor, Tensor], Tensor], coarse: bool, folder: Path, twin: int) -> None:
    """Predict a number of each of 8 samples, in as many micro-batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            for sample in torch.randn(8, 1, 6, generator=draws):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    found = model(sample)
                (loss(found.float(), sample[:, :1]) / 8).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
def test_another_loss_of_one_number_a_micro_batch_is_no_mean_of_means(coarse: bool, tmp_path: Path) -> None:
    runs = (partial(train_one_by_one, loss, coarse) for loss in (nn.functional.mse_loss, nn.functional.l1_loss))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "loss-or-targets"), verdict.explanation


class Rectified(nn.Module):
    """A layer in front of a BatchNorm that is frozen, with a function between them."""

    def __init__(self, norm: Callable[[int], nn.Module], function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 16), norm(16), nn.Linear(16, 5)
        self.function = function

    def forward(self, values: Tensor) -> Tensor:
        made: Tensor = self.head(self.norm(self.function(self.layer(values))[..., None, None]).flatten(1))
        return made


def train_with_frozen_norm(
    norm: Callable[[int], nn.Module], function: Callable[[Tensor], Tensor], parts: int, folder: Path, twin: int
) -> None:
    torch.manual_seed(0)
    model = Rectified(norm, function)
    model.norm.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            for part in torch.randn(SAMPLES, 6, generator=draws).chunk(parts):
                nn.functional.cross_entropy(model(part), (part.sum(1) > 0).long()).div(parts).backward()
            optimizer.step()


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, FrozenBatchNorm2d])
def test_a_frozen_batchnorm_is_not_named_for_another_function_in_front_of_it(
    norm: Callable[[int], nn.Module], tmp_path: Path
) -> None:
    rectified = partial(train_with_frozen_norm, norm, torch.relu, 1)
    verdict = compared(rectified, partial(train_with_frozen_norm, norm, nn.functional.silu, 2), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation


def squared(found: Tensor, wanted: Tensor) -> Tensor:
    return (found - wanted).square().mean()


def spread(found: Tensor, wanted: Tensor) -> Tensor:
    """A loss that holds the numbers of a pass a little apart (VICReg's variance, Bardes et al., 2022)."""
    return squared(found, wanted) + 0.03 * torch.relu(1 - found.var(0).add(1e-4).sqrt()).mean()


def train_to_numbers(
    loss: Callable[[Tensor, Tensor], Tensor], parts: int, coarse: bool, folder: Path, twin: int
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            samples, wanted = torch.randn(24, 6, generator=draws), torch.randn(24, 8, generator=draws)
            for some, numbers in zip(samples.chunk(parts), wanted.chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    found = model(some)
                loss(found.float(), numbers).div(parts).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("parts", [3, 4])
def test_a_small_term_over_the_numbers_of_a_pass_is_named(parts: int, coarse: bool, tmp_path: Path) -> None:
    verdict = compared(*(partial(train_to_numbers, spread, count, coarse) for count in (1, parts)), tmp_path)
    assert verdict.verdict == "different" and verdict.cause in ("batch-coupled-loss", "loss-or-targets"), verdict


@pytest.mark.parametrize("parts", [3, 4])
def test_a_sum_over_samples_is_not(parts: int, tmp_path: Path) -> None:
    verdict = compared(*(partial(train_to_numbers, squared, count, True) for count in (1, parts)), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation
