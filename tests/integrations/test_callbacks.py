"""What the callbacks say of a wrong use; tests/examples runs them in real loops."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from trainparity.parity.recording.trace import Trace

lightning = pytest.importorskip("lightning")


def test_several_optimizers_are_refused(tmp_path: Any) -> None:
    from trainparity.lightning import RecordCallback

    trainer = cast(Any, SimpleNamespace(optimizers=[1, 2]))
    with pytest.raises(ValueError, match=r"2 optimizers: call trainparity\.record for each"):
        RecordCallback(tmp_path).on_train_start(trainer, cast(Any, None))


def test_a_training_that_fails_leaves_the_steps_that_it_made(tmp_path: Path) -> None:
    from trainparity.lightning import RecordCallback

    model, data = nn.Linear(2, 1), torch.ones(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    callback, trainer = RecordCallback(tmp_path), cast(Any, SimpleNamespace(optimizers=[optimizer]))
    callback.on_train_start(trainer, cast(Any, model))
    model(data).sum().backward()
    optimizer.step()
    callback.on_exception(trainer, cast(Any, model), KeyboardInterrupt())
    assert Trace.load(tmp_path).layout.steps == [0]


def test_a_text_that_is_logged_is_left_out_of_the_curve(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from trainparity.accelerate import RecordTracker

    model, data = nn.Linear(2, 1), torch.ones(4, 2)
    optimizer, tracker = torch.optim.SGD(model.parameters(), lr=0.1), RecordTracker(tmp_path)
    tracker.attach(model, optimizer)
    tracker.log({"loss": 0.5, "phase": "warm-up", "table": {"a": 1}})
    model(data).sum().backward()
    optimizer.step()
    tracker.finish()
    assert (tmp_path / "curve.csv").read_text() == "step,name,value\n0,loss,0.5\n"
