"""States of trainings on disk: what optimizers keep in other ways than torch's own, and files that are damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from trainparity import checkpoints
from trainparity.parity.compare import compare_folders
from trainparity.records.base import RecordError


class Counting(torch.optim.Optimizer):
    """Keeps a Python number of each parameter."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, **options})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["made"] = state.get("made", 0) + 1
            parameter -= self.param_groups[0]["lr"] / state["made"] * parameter.grad


def train(folder: Path, optimizer: Callable[..., torch.optim.Optimizer], **options: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))
    made = optimizer(model.parameters())
    with trainparity.record(model, made, folder, every=3, interval=1, **options):
        for step in range(8):
            made.zero_grad()
            batch = torch.randn(4, 7, generator=torch.Generator().manual_seed(step))
            model(batch).square().mean().backward()
            made.step()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
        lambda p: torch.optim.Adam(p, betas=(torch.tensor(0.9), torch.tensor(0.999)), foreach=False),
        Counting,
    ],
    ids=["tensor as rate", "tensors as betas", "Python numbers"],
)
def test_windows_keep_what_an_optimizer_keeps(tmp_path: Path, optimizer: Callable[..., Any]) -> None:
    train(tmp_path / "a", optimizer)
    train(tmp_path / "b", optimizer, follow=tmp_path / "a")
    assert compare_folders(tmp_path / "a", tmp_path / "b").verdict == "bitwise"


def test_a_state_is_loaded_with_its_numbers_and_options(tmp_path: Path) -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    kept, loaded = (Counting(model.parameters(), scale=scale) for model, scale in zip(models, (2.0, 3.0), strict=True))
    kept.param_groups[0]["table"] = torch.ones(2)
    for _ in range(2):
        models[0](torch.ones(1, 2)).sum().backward()
        kept.step()
    checkpoints.save(tmp_path / "state", models[0], kept, {}, {}, main=True)
    checkpoints.load(tmp_path / "state", models[1], loaded, keep_settings=True)
    assert loaded.state[models[1].bias]["made"] == 2 and loaded.param_groups[0]["scale"] == 3.0
    assert torch.equal(models[1].weight, models[0].weight)
    checkpoints.load(tmp_path / "state", models[1], loaded)
    assert loaded.param_groups[0]["scale"] == 2.0


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="Counting holds a builtin_function_or_method as 'of', which is no tensor"):
        train(tmp_path, lambda parameters: Counting(parameters, of=len))


@pytest.mark.parametrize("file", ["state.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:-3] + bytes([b[-3] ^ 16]) + b[-2:], lambda b: b""])
def test_a_damaged_state_is_not_loaded(tmp_path: Path, file: str, damage: Callable[[bytes], bytes]) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    checkpoints.save(tmp_path / "state", model, optimizer, {}, {}, main=True)
    path = tmp_path / "state" / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RecordError, match="state: damaged"):
        checkpoints.load(tmp_path / "state", model, optimizer)
