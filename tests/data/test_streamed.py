"""A dataset larger than memory is read from its file; the training is the same."""

import os
import pickle
from copy import copy
from pathlib import Path

import pytest
import torch

from trainparity import workloads
from trainparity.data import memory
from trainparity.data.errors import DataError
from trainparity.data.loader import micro_batches
from trainparity.data.prepared import Prepared
from trainparity.data.store import load, write
from trainparity.data.streamed import Streamed
from trainparity.params import Configuration, Loader, Optimizer, Train
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer

SAMPLES, STEPS = 90, 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
    tensors = {"images": images, "labels": torch.arange(SAMPLES) % 10, "flags": images[:, 0] > 0}
    write(tmp_path / "data", "random", tensors, source="random", real=False)
    return tmp_path / "data"


def trainer(dataset: Prepared) -> Trainer:
    train = Train(seed=0, epochs=2, global_batch_size=20, optimizer=Optimizer(name="sgd", lr=0.1))
    workload = workloads.load("toy-linear", {})
    return Trainer(workload, dataset, train, Configuration(), Execution(device=torch.device("cpu")))


def trained(dataset: Prepared, *, pause_at: int) -> list[torch.Tensor]:
    """Train; the batches of the rest are asked for anew at `pause_at`, as a run does that goes on from a checkpoint."""
    made = trainer(dataset)
    for start, stop in ((0, pause_at), (pause_at, STEPS)):
        for step, batch in enumerate(made.batches(start, stop, Loader()), start):
            made.step(step, batch)
    return [parameter.detach().clone() for parameter in made.plain.parameters()]


def test_it_trains_to_the_same_bits_as_in_memory_and_after_a_pause(folder: Path) -> None:
    whole = trained(load(folder), pause_at=STEPS)
    for pause_at in (STEPS, 3):
        found = trained(load(folder, stream=True), pause_at=pause_at)
        assert all(torch.equal(a, b) for a, b in zip(whole, found, strict=True))


def test_it_streams_where_it_is_larger_than_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(load(folder), Streamed)
    monkeypatch.setattr(memory, "total_bytes", lambda: 1000)
    assert isinstance(load(folder), Streamed)
    with (folder / "data.safetensors").open("ab") as file:
        file.write(b"0")
    with pytest.raises(DataError, match=r"damaged: \d+ bytes"):
        load(folder)


def test_the_next_batch_is_read_while_one_is_trained_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, at, size, _: asked.append(os.pread(file, size, at)))
    data = load(folder, stream=True)
    monkeypatch.setattr("trainparity.data.loader._TOGETHER_BYTES", 1)
    batches = micro_batches(data, [torch.tensor([5, 7]), torch.tensor([80, 3])], Loader(), lambda error: None)
    next(batches)
    rows = [tensor[index].numpy().tobytes() for index in (3, 80) for tensor in data.tensors.values()]
    assert sorted(asked) == sorted(rows)
    asked.clear()
    next(batches)
    assert not asked  # nothing comes after the last one


def test_a_worker_that_is_not_forked_maps_the_file_again(folder: Path) -> None:
    whole, samples = load(folder, stream=True), torch.tensor([1, 89])
    assert len(pickle.dumps(whole)) < 1000
    assert torch.equal(copy(whole).batch(samples)["images"], whole.tensors["images"][samples])
