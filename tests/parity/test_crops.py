"""Models that are given several crops of each image and put those of one size together, as DINO does."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import log_softmax, softmax

import trainparity
from tests.support.against_twins import compared
from tests.support.on_ranks import on_ranks
from trainparity.parity.recording.trace import Trace


class MultiCrop(nn.Module):
    """Passes crops of one size as one batch, view after view, and all of them through the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, 6)

    def forward(self, crops: list[Tensor]) -> Tensor:
        sizes = sorted({crop.shape[-1] for crop in crops}, reverse=True)
        made = [self.body(torch.cat([crop for crop in crops if crop.shape[-1] == size])) for size in sizes]
        head: Tensor = self.head(torch.cat(made))
        return head


def train(parts: int, temperature: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = MultiCrop()
    optimizer, draws = torch.optim.SGD(model.parameters(), lr=0.5), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            crops = [torch.randn(16, 1, size, size, generator=draws) for size in (8, 8, 4, 4, 4)]
            for of_part in zip(*(crop.chunk(parts) for crop in crops), strict=True):
                views = model(list(of_part)).chunk(5)
                wanted = [softmax(view.detach() / temperature, -1) for view in views[:2]]
                pairs = [(w, view) for i, w in enumerate(wanted) for j, view in enumerate(views) if i != j]
                loss = sum((-w * log_softmax(view / 0.1, -1)).sum(-1).mean() for w, view in pairs) / len(pairs)
                (loss / parts).backward()  # type: ignore[union-attr]
            optimizer.step()


@pytest.mark.parametrize("parts", [2, 4])
def test_they_may_be_cut(parts: int, tmp_path: Path) -> None:
    assert compared(partial(train, 1, 0.04), partial(train, parts, 0.04), tmp_path).verdict == "equivalent"


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_another_loss_is_no_other_forward_pass(parts: int, tmp_path: Path) -> None:
    found = compared(partial(train, 1, 0.04), partial(train, parts, 0.07), tmp_path)
    assert (found.verdict, found.cause) == ("different", "loss-or-targets"), found.explanation


class TwoStreams(nn.Module):
    """Is given two clips of each sample, whose frames it passes sample after sample, as does what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, 6)

    def forward(self, colours: Tensor, flow: Tensor) -> Tensor:
        head: Tensor = self.head(self.body(torch.cat([colours, flow], 2).flatten(0, 1)))
        return head


def train_streams(parts: int, smoothing: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = TwoStreams()
    optimizer, draws = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            clips = [torch.randn(16, 2, 1, 8, 8, generator=draws) for _ in range(2)]
            labels = torch.randint(6, (16, 2), generator=draws)
            for colours, flow, right in zip(*(whole.chunk(parts) for whole in (*clips, labels)), strict=True):
                with torch.autocast("cpu", torch.bfloat16):
                    scores = model(colours, flow)
                loss = nn.functional.cross_entropy(scores.float(), right.flatten(), label_smoothing=smoothing)
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(("smoothing", "cause"), [(0.0, None), (0.02, "loss-or-targets")])
def test_frames_that_lie_sample_after_sample_are_no_views(
    parts: int, smoothing: float, cause: str | None, tmp_path: Path
) -> None:
    found = compared(partial(train_streams, 1, 0.0), partial(train_streams, parts, smoothing), tmp_path)
    assert found.cause == cause, found.explanation
    assert found.verdict == ("different" if cause else "bitwise" if parts == 1 else "equivalent")


def test_a_module_may_return_nothing_for_each_view(tmp_path: Path) -> None:
    class Empty(MultiCrop):
        def forward(self, crops: list[Tensor]) -> Tensor:
            made = self.body(torch.cat(crops))
            head: Tensor = self.head(torch.cat([made, self.nothing(made)], 1))
            return head

    model = Empty()
    model.nothing = nn.Linear(8, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with trainparity.record(model, optimizer, tmp_path):
        model([torch.randn(4, 1, 8, 8), torch.randn(4, 1, 8, 8)]).sum().backward()
        optimizer.step()


class EncodedApart(nn.Module):
    """Passes each of two views by itself, and returns both, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, 4))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.cat([self.body(one), self.body(other)])


def train_apart(parts: int, coarse: bool, weight: float, folder: Path, twin: int) -> None:
    torch.manual_seed(0)
    model = EncodedApart()
    optimizer, draws = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin):
        for _ in range(5):
            optimizer.zero_grad()
            views = torch.randn(2, 16, 8, generator=draws)
            for one, other in zip(*(view.chunk(parts) for view in views), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
                    made = model(one, other)
                loss = (made.float() - 1).square().mean() + weight * made.float().mean()
                (loss / parts).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("coarse", "weight", "cause"), [(True, 0.0, None), (False, 0.0, None), (False, 0.02, "loss-or-targets")]
)
def test_views_that_are_put_together_at_the_end_may_be_cut(
    coarse: bool, weight: float, cause: str | None, tmp_path: Path
) -> None:
    found = compared(partial(train_apart, 1, coarse, 0.0), partial(train_apart, 4, coarse, weight), tmp_path)
    assert found.cause == cause, found.explanation
    assert found.verdict == ("different" if cause else "equivalent")


class OfShards(nn.Module):
    """Puts two tensors into one batch, of which each rank holds a part then."""

    def __init__(self) -> None:
        super().__init__()
        self.join, self.norm = nn.Identity(), nn.LayerNorm(8)
        self.inner, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        made = self.norm(self.join(torch.cat([first, second])))
        scores: Tensor = self.head(torch.tanh(self.inner(made))).unflatten(0, (2, -1)).sum(0)
        return scores


def train_shards(rank: int, folder: str) -> Tensor:
    torch.manual_seed(0)
    model, mesh = OfShards(), init_device_mesh("cpu", (2,))
    replicate = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    parts = {"inner": ColwiseParallel(), "head": RowwiseParallel(), "norm": SequenceParallel(sequence_dim=0)}
    parallelize_module(model, mesh, {"join": replicate, **parts})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with trainparity.record(model, optimizer, folder):
        for first, second in torch.randn(3, 2, 8, 8):
            optimizer.zero_grad()
            model(first, second).square().mean().backward()
            optimizer.step()
    return torch.zeros(1)


def test_a_model_of_shards_that_is_given_two_tensors_is_recorded(tmp_path: Path) -> None:
    on_ranks(2, tmp_path, train_shards, str(tmp_path / "run"))
    assert Trace.load(tmp_path / "run").layout.made == 3
