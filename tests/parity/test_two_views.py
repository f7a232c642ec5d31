"""Models that are given two views of each sample, and stack them or pass them in turns: the loss is made inside."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import trainparity
from tests.support.against_twins import compared

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


class Graph(nn.Module):
    """A graph's convolution (Kipf and Welling, 2017), whose two products may be taken in either order."""

    def __init__(self, weights_first: bool) -> None:
        super().__init__()
        self.weights_first = weights_first
        self.layers = nn.ModuleList([nn.Linear(8, 32, bias=False), nn.Linear(32, 6, bias=False)])

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        for layer in self.layers:
            product = edges @ layer(nodes) if self.weights_first else layer(edges @ nodes)
            nodes = product.relu() if layer is self.layers[0] else product
        return nodes


@FORMATS
def test_products_in_another_order_are_another_formulation(coarse: bool, tmp_path: Path) -> None:
    draws = torch.Generator().manual_seed(1)
    nodes, labels = torch.rand(40, 8, generator=draws), torch.randint(6, (40,), generator=draws)
    edges = (torch.rand(40, 40, generator=draws) < 0.1).float() + torch.eye(40)
    edges = edges / edges.sum(1, keepdim=True)

    def train(weights_first: bool, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = Graph(weights_first)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for _ in range(4):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    outputs = model(nodes, edges)
                nn.functional.cross_entropy(outputs.float(), labels).backward()
                optimizer.step()

    verdict = compared(partial(train, True), partial(train, False), tmp_path)
    assert verdict.verdict == "equivalent", verdict.explanation


class Residual(nn.Module):
    """Adds a little of what a function without weights makes."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 6)
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


def test_another_function_that_adds_little_is_no_formulation(tmp_path: Path) -> None:
    draws = torch.Generator().manual_seed(1)
    samples, labels = torch.randn(32, 8, generator=draws), torch.randint(6, (32,), generator=draws)

    def train(factor: float, folder: Path, twin: int) -> None:
        torch.manual_seed(0)
        model = Residual(factor)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
            for _ in range(3):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    outputs = model(samples)
                nn.functional.cross_entropy(outputs.float(), labels).backward()
                optimizer.step()

    verdict = compared(partial(train, 1.0), partial(train, 1.2), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "forward"), verdict.explanation
    assert "output of branch" in (verdict.explanation or "")
