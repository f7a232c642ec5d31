"""Inputs that are no plain batch, and images in another memory format."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import trainparity
from tests.support.against_twins import compared
from trainparity.parity.compare import compare_folders

STEPS, NODES, CLASSES = 3, 24, 4
FEATURES = torch.rand(NODES, 6, generator=torch.Generator().manual_seed(1)).round()
EDGES = torch.rand(NODES, NODES, generator=torch.Generator().manual_seed(2)).gt(0.8).float() + torch.eye(NODES)
LABELS = torch.randint(0, CLASSES, (NODES,), generator=torch.Generator().manual_seed(3))
LINES = torch.randn(STEPS, 5, 8, 6, generator=torch.Generator().manual_seed(4))
IMAGES = torch.randn(2, 64, 4, 64, 64, generator=torch.Generator().manual_seed(5)) + 0.3

Loss = Callable[[nn.Module, int], Tensor]


class OverGraph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, CLASSES)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        return torch.sparse.mm(edges, self.layer(features.to_dense()))


def trained(folder: Path, model: Callable[[], nn.Module], loss: Loss, steps: int = STEPS, twins: int = 0) -> Path:
    for twin in range(twins + 1):
        torch.manual_seed(0)
        made = model()
        optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
        with trainparity.record(made, optimizer, folder, twin=twin):
            for step in range(steps):
                optimizer.zero_grad()
                loss(made, step).backward()
                optimizer.step()
    return folder


def over_graph(features: Tensor = FEATURES, edges: Tensor = EDGES, labels: Tensor = LABELS) -> Loss:
    return lambda model, step: functional.cross_entropy(model(features.to_sparse(), edges.to_sparse()), labels)


def test_sparse_inputs_are_samples_and_other_ones_are_named(tmp_path: Path) -> None:
    reference = trained(tmp_path / "a", OverGraph, over_graph(), twins=1)
    faults = {
        "inputs": over_graph(edges=torch.eye(NODES)),
        "loss-or-targets": over_graph(labels=LABELS.flip(0)),
    }
    for cause, loss in faults.items():
        assert compare_folders(reference, trained(tmp_path / cause, OverGraph, loss)).cause == cause


def with_hidden_state(factor: float) -> Loss:
    """Time comes first: [5, 8, 6], and a state [1, 8, 3] beside it."""

    def loss(model: nn.Module, step: int) -> Tensor:
        found, _ = model(LINES[step], torch.full((1, 8, 3), factor * (step + 1)))
        return found.square().mean()

    return loss


def test_a_hidden_state_of_other_values_is_another_input(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.RNN(6, 3)

    reference = trained(tmp_path / "a", model, with_hidden_state(0.1), twins=1)
    assert compare_folders(reference, trained(tmp_path / "b", model, with_hidden_state(0.0))).cause == "inputs"

    def without_one(model: nn.Module, step: int) -> Tensor:
        found: Tensor = model(LINES[step])[0]
        return found.square().mean()

    assert compare_folders(reference, trained(tmp_path / "c", model, without_one)).cause == "inputs"


def test_passes_that_update_running_statistics_alone_are_counted(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))

    def loss(model: nn.Module, step: int, validates: bool = False) -> Tensor:
        with torch.no_grad():
            model(LINES[0, 0]) if validates else None
        found: Tensor = model(LINES[step, 0])
        return found.tanh().square().mean()

    reference = trained(tmp_path / "a", model, loss, twins=1)
    found = compare_folders(reference, trained(tmp_path / "b", model, partial(loss, validates=True)))
    assert found.cause == "buffers-only" and found.evidence["batches_counted"] == [1.0, 2.0]


class OverChunks(nn.Module):
    """A language model that may apply its output layer to chunks of the sequence, as to save memory."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.hidden, self.out, self.chunks = nn.Linear(6, 8), nn.Linear(8, CLASSES), chunks

    def forward(self, lines: Tensor) -> list[Tensor]:
        return [self.out(part) for part in self.hidden(lines).tanh().chunk(self.chunks, 1)]


def over_chunks(model: nn.Module, step: int) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        parts = model(LINES[step].transpose(0, 1)[:, :4])
    return sum(((part.float() - 1).square().sum() for part in parts), torch.zeros(())) / 128


def test_an_output_layer_over_chunks_of_the_sequence_is_no_other_forward_pass(tmp_path: Path) -> None:
    reference = trained(tmp_path / "a", lambda: OverChunks(1), over_chunks, twins=2)
    found = compare_folders(reference, trained(tmp_path / "b", lambda: OverChunks(2), over_chunks))
    assert found.verdict == "equivalent", found


def over_images(memory_format: torch.memory_format) -> Loss:
    return lambda model, step: model(IMAGES[step].to(memory_format=memory_format)).square().mean()


def test_sums_over_many_positions_may_run_in_another_order(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 8, stride=8))

    reference = trained(tmp_path / "a", model, over_images(torch.contiguous_format), steps=2, twins=1)
    other = trained(tmp_path / "b", model, over_images(torch.channels_last), steps=2)
    found = compare_folders(reference, other)
    assert found.verdict == "equivalent", found


class Noisy(nn.Module):
    """Adds noise to images, whose memory format decides in which order numbers are drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 2, 8, stride=8)

    def forward(self, images: Tensor) -> Tensor:
        output: Tensor = self.layer(images + torch.randn_like(images))
        return output


def test_noise_in_another_memory_format_is_told_beside_another_function(tmp_path: Path) -> None:
    reference = trained(tmp_path / "a", Noisy, over_images(torch.contiguous_format), steps=2, twins=1)
    found = compare_folders(reference, trained(tmp_path / "b", Noisy, over_images(torch.channels_last), steps=2))
    assert found.cause == "forward" and "random numbers are drawn there" in (found.explanation or "")


class Skipping(nn.Module):
    """Leaves layers out by a generator outside of torch."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.layers, self.draw = nn.ModuleList([nn.Conv2d(4, 4, 1) for _ in range(8)]), draw

    def forward(self, images: Tensor) -> Tensor:
        for layer in self.layers:
            images = layer(images) if self.draw() < 0.5 else images
        return images


@pytest.mark.parametrize("draw", [random.random, np.random.random], ids=["python", "numpy"])
def test_layers_left_out_by_another_generator_are_randomness(draw: Callable[[], float], tmp_path: Path) -> None:
    def made(seed: int) -> nn.Module:
        random.seed(seed)
        np.random.seed(seed)
        return Skipping(draw)

    loss = over_images(torch.contiguous_format)
    reference = trained(tmp_path / "a", lambda: made(1), loss, 2, twins=1)
    assert compare_folders(reference, trained(tmp_path / "b", lambda: made(1), loss, 2)).verdict == "bitwise"
    assert compare_folders(reference, trained(tmp_path / "c", lambda: made(2), loss, 2)).cause == "randomness"


def train_on_own_points(scale: float, folder: Path, twin: int) -> None:
    """Train a model that is given points, and then points that it has moved, as the fine network of a NeRF is."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    draws = torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            points = scale * torch.randn(16, 3, generator=draws)
            optimizer.zero_grad()
            coarse = model(points)
            fine = model(points + coarse.detach())
            (coarse.square().mean() + fine.square().mean()).backward()
            optimizer.step()


def test_of_points_that_a_model_has_moved_those_that_it_is_given_first_tell_the_inputs(tmp_path: Path) -> None:
    """Those that it moves are others in each twin."""
    verdict = compared(*(partial(train_on_own_points, scale) for scale in (1.0, 1.01)), tmp_path)
    assert (verdict.verdict, verdict.cause) == ("different", "inputs"), verdict.explanation


def normalised(scale: float, folder: Path, twin: int) -> None:
    """Train what takes the scale of its inputs out again."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16, eps=1e-30), nn.Tanh(), nn.Linear(16, 2))
    optimizer, draws = torch.optim.SGD(model[2:].parameters(), lr=0.1), torch.Generator().manual_seed(1)
    with trainparity.record(model, optimizer, folder, twin=twin, interval=1):
        for _ in range(4):
            optimizer.zero_grad()
            model(scale * torch.randn(16, 8, generator=draws)).square().mean().backward()
            optimizer.step()


def test_other_values_that_normalisation_takes_out_are_no_matter_of_buffers_alone(tmp_path: Path) -> None:
    found = compared(partial(normalised, 1.0), partial(normalised, 2.0), tmp_path)
    assert (found.verdict, found.cause) == ("different", "inputs"), found.explanation
