"""Modules that cast their weights by themselves, without autocast, as those of EDM, StyleGAN, guided diffusion."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

import trainparity
from tests.support.against_twins import compared, train_towards_one
from trainparity.parity.recording.trace import Trace


class Casting(nn.Linear):
    """Takes its weights in the format that it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Residual(nn.Module):
    def __init__(self, dtype: torch.dtype, scale: float) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale
        self.first, self.inner, self.last = Casting(8, 32), Casting(32, 32), Casting(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.to(self.dtype))
        hidden = (hidden + torch.tanh(self.inner(hidden))) * self.scale
        made: Tensor = self.last(hidden).float()
        return made


def train(folder: Path, twin: int, *, dtype: torch.dtype = torch.bfloat16, scale: float = 0.5, parts: int = 1) -> None:
    torch.manual_seed(0)
    model = Residual(dtype, scale)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    train_towards_one(model, optimizer, torch.randn(5, 16, 8), folder, twin, parts=parts)


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16"), (torch.float32, "fp32")]
)
def test_their_format_is_seen(dtype: torch.dtype, name: str, tmp_path: Path) -> None:
    train(tmp_path, 0, dtype=dtype)
    assert Trace.load(tmp_path).layout.precision == name


@pytest.mark.parametrize("parts", [1, 2])
def test_right_runs_are_the_same(parts: int, tmp_path: Path) -> None:
    assert compared(train, partial(train, parts=parts), tmp_path).verdict in ("bitwise", "equivalent")


def test_another_scale_is_seen_within_rounding(tmp_path: Path) -> None:
    verdict = compared(train, partial(train, scale=0.49), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward")


def test_beside_single_precision_it_is_the_precision(tmp_path: Path) -> None:
    verdict = compared(partial(train, dtype=torch.float32), train, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "precision")


class Logging(nn.Module):
    """Keeps numbers in bf16 for a log, with a frozen scale of its own: none of the training."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32), requires_grad=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return (hidden.detach() * self.scale).bfloat16()


class Teacher(nn.Module):
    """Frozen, and under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 4)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            made: Tensor = self.last(torch.tanh(self.first(x)))
        return made


class Single(nn.Module):
    def __init__(self, beside: type[nn.Module] | None, factor: float) -> None:
        super().__init__()
        self.first, self.last, self.factor = nn.Linear(8, 32), nn.Linear(32, 4), factor
        self.beside = beside() if beside else None

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        if self.beside is not None:
            self.beside(hidden if isinstance(self.beside, Logging) else x)
        made: Tensor = self.last(hidden * self.factor)
        return made


def train_single(
    folder: Path, twin: int, *, beside: type[nn.Module] | None, factor: float = 1.0, parts: int = 1
) -> None:
    torch.manual_seed(0)
    model = Single(None, factor)
    model.beside = beside() if beside else None
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    train_towards_one(model, optimizer, torch.randn(5, 16, 8), folder, twin, parts=parts)


@pytest.mark.parametrize("beside", [Logging, Teacher])
def test_what_no_gradient_comes_back_through_makes_no_coarse_training(beside: type[nn.Module], tmp_path: Path) -> None:
    plain = partial(train_single, beside=beside)
    assert compared(plain, partial(plain, parts=2), tmp_path / "right").verdict == "equivalent"
    verdict = compared(plain, partial(plain, factor=1.01), tmp_path / "wrong")
    assert (verdict.verdict, verdict.cause) == ("different", "forward")
    assert verdict.distance_over_floor and verdict.distance_over_floor > 1000


class Returning(nn.Linear):
    """Computes in bf16, and returns what it was given: single precision."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x.bfloat16(), self.weight.bfloat16(), self.bias.bfloat16()).float()


class Hidden(nn.Module):
    """Casts weights where no module returns what is made of them."""

    def __init__(self, kind: type[nn.Linear]) -> None:
        super().__init__()
        self.first, self.last = kind(8, 32), kind(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        made: Tensor = Returning.forward(self.last, hidden)  # type: ignore[arg-type]
        return made


def train_hidden(folder: Path, twin: int, *, kind: type[nn.Linear], parts: int = 1, factor: float = 1.0) -> None:
    torch.manual_seed(0)
    model = Hidden(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for batch in torch.randn(5, 16, 8):
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                (factor * (model(part) - 1).square().mean() / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("kind", [Returning, nn.Linear])
def test_casts_that_no_hook_sees_show_in_the_gradients_of_weights(kind: type[nn.Linear], tmp_path: Path) -> None:
    train = partial(train_hidden, kind=kind)
    assert compared(train, partial(train, parts=4), tmp_path / "right").verdict == "equivalent"
    assert Trace.load(tmp_path / "right/reference").layout.precision == "bf16"
    verdict = compared(train, partial(train, parts=4, factor=4.0), tmp_path / "wrong")
    assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation")


class Counts(nn.Module):
    """A regression on counts, begun at zero: what its gradient sums are whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(512, 3)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x)
        return made


def train_on_counts(folder: Path, twin: int, *, parts: int = 1, factor: float = 1.0) -> None:
    torch.manual_seed(0)
    model = Counts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # as where a warm-up begins
    wanted = torch.randn(16, 3)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for batch in torch.randint(0, 20, (6, 16, 512)).float():
            optimizer.zero_grad()
            for some, towards in zip(batch.chunk(parts), wanted.chunk(parts), strict=True):
                (factor * (model(some) - towards).abs().sum() / 16).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] += 2.0**-14


def test_whole_numbers_are_no_coarse_format(tmp_path: Path) -> None:
    found = compared(train_on_counts, partial(train_on_counts, parts=2), tmp_path / "right")
    assert found.verdict in ("bitwise", "equivalent"), found.reason
    assert Trace.load(tmp_path / "right/reference").layout.precision == "fp32"
    verdict = compared(train_on_counts, partial(train_on_counts, factor=1.01), tmp_path / "wrong")
    assert (verdict.verdict, verdict.cause) == ("different", "loss-normalisation"), verdict.explanation


class Normed(nn.Module):
    """Makes what it casts of its weights, and takes one of them twice: their gradients have all digits."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.nn.functional.normalize(self.first.weight, dim=1) * 0.3
        hidden = torch.tanh(linear(x.bfloat16(), weight.bfloat16()).float())
        for _ in range(2):
            hidden = torch.tanh(linear(hidden.bfloat16(), self.inner.weight.bfloat16()).float())
        made: Tensor = linear((self.factor * hidden).bfloat16(), (self.last.weight * 0.3).bfloat16()).float()
        return made


@pytest.mark.parametrize("parts", [2, 4])
def test_weights_that_are_made_before_they_are_cast_show_it(parts: int, tmp_path: Path) -> None:
    def train(folder: Path, twin: int, *, parts: int = 1, factor: float = 1.0) -> None:
        torch.manual_seed(0)
        model = Normed(factor)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        train_towards_one(model, optimizer, torch.randn(5, 16, 8), folder, twin, parts=parts)

    verdict = compared(train, partial(train, parts=parts), tmp_path / "right")
    assert verdict.verdict == "equivalent", verdict.explanation
    assert Trace.load(tmp_path / "right/reference").layout.precision == "bf16"
    verdict = compared(train, partial(train, factor=1.2), tmp_path / "wrong")
    assert verdict.verdict == "different", verdict.reason


class HalfAtTimes(nn.Module):
    """Takes a branch in half precision in every second step, the first left out, and may return it for a log."""

    def __init__(self, parts: int, logs: bool) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(8, 32), Returning(32, 32), nn.Linear(32, 4)
        self.parts, self.logs, self.calls = parts, logs, 0

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        step, self.calls = self.calls // self.parts, self.calls + 1
        hidden = torch.tanh(self.first(x))
        if not self.logs and step % 2:
            hidden = hidden + self.inner(hidden)
        return (self.last(hidden), hidden.half()) if self.logs else self.last(hidden)


def train_at_times(folder: Path, *, parts: int = 1, logs: bool = False) -> None:
    torch.manual_seed(0)
    model = HalfAtTimes(parts, logs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder):
        for batch in torch.randn(6, 16, 8):
            optimizer.zero_grad()
            for part in batch.chunk(parts):
                made = model(part)
                ((made[0] if logs else made).square().mean() / parts).backward()
            optimizer.step()


def test_a_branch_of_some_steps_is_seen_whatever_the_cut(tmp_path: Path) -> None:
    """It is looked for in as many steps, not in as many backward passes."""
    for parts in (1, 4):
        train_at_times(tmp_path / str(parts), parts=parts)
        assert Trace.load(tmp_path / str(parts)).layout.precision == "bf16"


def test_what_is_returned_for_a_log_alone_makes_no_coarse_training(tmp_path: Path) -> None:
    """No loss is made of it, though it is not detached."""
    train_at_times(tmp_path, logs=True)
    assert Trace.load(tmp_path).layout.precision == "fp32"
