"""What a user's workload returns to the loop."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.mlp import Mlp
from tests.support.runs import prepared
from trainparity import workloads
from trainparity.data.store import load
from trainparity.params import Configuration, Loader, Optimizer, Train
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer


def train_a_step(folder: Path) -> None:
    train = Train(seed=0, epochs=1, global_batch_size=20, optimizer=Optimizer(name="sgd", lr=0.1))
    workload = workloads.load("tests.support.mlp:Mlp", {})
    dataset = load(prepared(folder))
    trainer = Trainer(workload, dataset, train, Configuration(), Execution(device=torch.device("cpu")))
    trainer.step(0, next(iter(trainer.batches(0, 1, Loader()))))


@pytest.mark.parametrize(
    ("method", "returned", "message"),
    [
        ("build_model", 3, "`build_model` returned int, not a torch.nn.Module"),
        ("loss", 3.0, "`loss` returned float, not a scalar tensor"),
        ("loss", torch.zeros(4, requires_grad=True), r"`loss` returned a tensor \[4\], not a scalar tensor"),
    ],
)
def test_a_method_that_returns_something_else_is_named(
    method: str, returned: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_a_step(tmp_path)
    monkeypatch.setattr(Mlp, method, lambda *_: returned)
    with pytest.raises(TypeError, match=message):
        train_a_step(tmp_path)
