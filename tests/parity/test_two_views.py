"""Models that are given two views of each sample, and stack them or pass them in turns: the loss is made inside."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

import trainparity
from tests.support import against_twins
from tests.support.against_twins import LABELS, compared

NORMS = {"batch": nn.BatchNorm1d, "group": partial(nn.GroupNorm, 2)}


class Views(nn.Module):
    """Pulls two views together, as BYOL does."""

    def __init__(self, norm: str, stacked: bool) -> None:
        super().__init__()
        self.stacked = stacked
        self.encoder = nn.Sequential(nn.Linear(8, 16), NORMS[norm](16), nn.ReLU(), nn.Linear(16, 8))
        self.predictor = nn.Linear(8, 8)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        views = (first, second)
        made = self.encoder(torch.cat(views)).chunk(2) if self.stacked else [self.encoder(view) for view in views]
        wanted = [each.detach().float() for each in made]
        one, two = (self.predictor(each).float() for each in made)
        return mse_loss(one, wanted[1]) + mse_loss(two, wanted[0])


def train(norm: str, stacked: bool, parts: int, equal: bool, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Views(norm, stacked)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            first = torch.randn(16, 8, generator=draws)
            second = first + 0.3 * torch.randn(16, 8, generator=draws)
            for views in zip(first.chunk(parts), (first if equal else second).chunk(parts), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    loss = model(*views)
                (loss / parts).backward()
            optimizer.step()


FORMATS = pytest.mark.parametrize("coarse", [False, True], ids=["fp32", "bf16"])


class Targets(nn.Module):
    """Pulls views towards what an average makes of them, or by mistake towards what the trained encoder does."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own = own
        self.online = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
        self.average = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, views: Tensor) -> tuple[Tensor, ...]:
        encoder = self.online if self.own else self.average
        return (*map(self.online, views), *map(encoder, views))


def train_towards(own: bool, coarse: bool, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = Targets(own)
    optimizer = torch.optim.SGD(model.online.parameters(), lr=0.1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for views in torch.randn(5, 2, 16, 8, generator=torch.Generator().manual_seed(1)):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                one, two, first, second = (made.float() for made in model(views))
            (mse_loss(one, second) + mse_loss(two, first)).backward()
            optimizer.step()


@FORMATS
def test_a_batchnorm_that_sees_as_many_rows_in_further_calls_is_no_cause(coarse: bool, tmp_path: Path) -> None:
    found = compared(partial(train_towards, False, coarse), partial(train_towards, True, coarse), tmp_path)
    assert found.verdict == "different" and found.cause in ("forward", "loss-or-targets"), found.explanation


@FORMATS
@pytest.mark.parametrize(
    ("stacked", "parts", "said"), [(False, 1, "calls encoder.1 once"), (True, 2, "over 16 samples")]
)
def test_batchnorm_over_other_rows_is_named(stacked: bool, parts: int, said: str, coarse: bool, tmp_path: Path) -> None:
    reference, test = (partial(train, "batch", *how, False, coarse) for how in ((True, 1), (stacked, parts)))
    verdict = compared(reference, test, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "batchnorm-statistics"), verdict.explanation
    assert said in (verdict.explanation or "")


@FORMATS
@pytest.mark.parametrize(("stacked", "parts"), [(False, 1), (True, 2), (False, 4)])
def test_without_it_they_are_the_same_training(stacked: bool, parts: int, coarse: bool, tmp_path: Path) -> None:
    reference, test = (partial(train, "group", *how, False, coarse) for how in ((True, 1), (stacked, parts)))
    verdict = compared(reference, test, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


@FORMATS
@pytest.mark.parametrize("parts", [1, 2])
def test_another_second_view_is_seen_in_any_cut(parts: int, coarse: bool, tmp_path: Path) -> None:
    reference, test = (
        partial(train, "group", True, 1, False, coarse),
        partial(train, "group", True, parts, True, coarse),
    )
    verdict = compared(reference, test, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "inputs"), verdict.explanation


class Flip(nn.Module):
    """Makes a second view, of the samples' format or of autocast's."""

    def __init__(self, coarse: bool) -> None:
        super().__init__()
        self.register_buffer("mixed", 0.9 * torch.eye(8).flip(1) if coarse else None)

    def forward(self, samples: Tensor) -> Tensor:
        return 0.9 * samples.flip(1) if self.mixed is None else samples @ self.mixed


class MakesViews(nn.Module):
    """Makes views of what it is given by modules, and pulls them together in one batch."""

    def __init__(self, coarse: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), Flip(coarse)
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, samples: Tensor) -> Tensor:
        made = self.encoder(torch.cat((self.first(samples), self.second(samples)))).float()
        one, two = made.chunk(2)
        return mse_loss(one, two.detach() + 1)


def train_on_made_views(coarse: bool, parts: int, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = MakesViews(coarse)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for samples in torch.randn(4, 16, 8, generator=torch.Generator().manual_seed(1)):
            optimizer.zero_grad()
            for some in samples.chunk(parts):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = model(some)
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("coarse", [False, True])
def test_views_that_modules_make_lie_one_after_the_other_in_any_cut(coarse: bool, tmp_path: Path) -> None:
    """One of which a product makes, in bf16, beside the samples in fp32."""
    reference, test = (partial(train_on_made_views, coarse, parts) for parts in (1, 4))
    verdict = compared(reference, test, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


class Graph(nn.Module):
    """A graph's convolution (Kipf and Welling, 2017) of 16 nodes, whose two products may be taken in either order."""

    def __init__(self, weights_first: bool) -> None:
        super().__init__()
        self.weights_first = weights_first
        self.layers = nn.ModuleList([nn.Linear(4, 32, bias=False), nn.Linear(32, 10, bias=False)])
        edges = (torch.rand(16, 16, generator=torch.Generator().manual_seed(1)) < 0.1).float() + torch.eye(16)
        self.edges = edges / edges.sum(1, keepdim=True)

    def forward(self, nodes: Tensor) -> Tensor:
        for layer in self.layers:
            product = self.edges @ layer(nodes) if self.weights_first else layer(self.edges @ nodes)
            nodes = product.relu() if layer is self.layers[0] else product
        return nodes


class Residual(nn.Module):
    """Adds a little of what a function without weights makes."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 32), nn.Linear(32, 10)
        self.branch = Scaled(factor)

    def forward(self, samples: Tensor) -> Tensor:
        hidden = self.first(samples).tanh()
        return self.last(hidden + 0.01 * self.branch(hidden))  # type: ignore[no-any-return]


class Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, hidden: Tensor) -> Tensor:
        return (self.factor * hidden).sin()


def classified(outputs: Tensor) -> Tensor:
    return cross_entropy(outputs.float(), LABELS)


@FORMATS
def test_products_in_another_order_are_another_formulation(coarse: bool, tmp_path: Path) -> None:
    runs = (partial(against_twins.train, partial(Graph, first), classified, coarse) for first in (True, False))
    verdict = compared(*runs, tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


def test_another_function_that_adds_little_is_no_formulation(tmp_path: Path) -> None:
    runs = (partial(against_twins.train, partial(Residual, factor), classified, True) for factor in (1.0, 1.2))
    verdict = compared(*runs, tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation
    assert "output of branch" in (verdict.explanation or "")
