"""What a user's workload returns to the loop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.mlp import Mlp
from tests.support.runs import Reference, configuration, prepared, train
from trainparity import workloads
from trainparity.data.store import load
from trainparity.params import Configuration, Loader, Optimizer, Train
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.workloads import Batch
from trainparity.workloads.checked import WorkloadError


def train_a_step(folder: Path) -> None:
    settings = Train(seed=0, epochs=1, global_batch_size=20, optimizer=Optimizer(name="sgd", lr=0.1))
    workload = workloads.load("tests.support.mlp:Mlp", {})
    dataset = load(prepared(folder))
    trainer = Trainer(workload, dataset, settings, Configuration(), Execution(device=torch.device("cpu")))
    trainer.step(0, next(iter(trainer.batches(0, 1, Loader()))))


@pytest.mark.parametrize(
    ("method", "returned", "message"),
    [
        ("build_model", 3, "`build_model` of Mlp returned a value of type int"),
        ("loss", 3.0, "`loss` of Mlp returned a value of type float"),
        ("count", 0, "`count` of Mlp returned 0 for all of a global batch"),
    ],
)
def test_a_method_that_returns_something_else_is_named(
    method: str, returned: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_a_step(tmp_path)
    monkeypatch.setattr(Mlp, method, lambda *_: returned)
    with pytest.raises(WorkloadError, match=message):
        train_a_step(tmp_path)


class Tied(Mlp):
    def build_model(self, sample: Batch) -> nn.Module:
        model = super().build_model(sample)
        again = nn.Linear(24, 10)
        again.weight = model[3].weight  # type: ignore[index]
        return nn.Sequential(*model, nn.Linear(10, 24), nn.Tanh(), again)  # type: ignore[arg-type]


def test_tied_weights_are_trained_kept_and_resumed(tmp_path: Path) -> None:
    reference = Reference(tmp_path, prepared(tmp_path), workload=f"{__name__}:Tied", steps=4, window=2)
    other = train(reference.candidate("accumulated", configuration(accumulation_steps=2)))
    assert reference.judge(other).verdict == "equivalent"
