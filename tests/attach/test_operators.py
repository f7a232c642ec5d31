from pathlib import Path

import pytest
import torch
from torch import nn

from trainparity.attach.operators import OperatorWindow
from trainparity.records.operators import OperatorLog


def test_the_operators_of_one_step_are_logged_with_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    window = OperatorWindow(1, tmp_path / "operators.json")
    for step in range(3):
        window.at(step)
        optimizer.zero_grad()
        model(torch.full((2, 4), float(step))).sum().backward()
        optimizer.step()
    window.at(3)
    log = OperatorLog.read(tmp_path / "operators.json")
    assert log.step == 1
    names = [call.operator for call in log.calls]
    assert names[:5] == ["aten.full", "aten.addmm", "aten.tanh", "aten.addmm", "aten.sum"]
    assert sorted(map(abs, log.calls[0].sketch)) == [0.0] * 8 + [1.0] * 8
    assert {call.place.partition(":")[0] for call in log.calls} == {"test_operators.py"}
    assert any(call.place.endswith("in AddmmBackward0") for call in log.calls)
    assert names[-1] == "aten.add_"  # the last parameter's update
    assert log.calls[-1].shape == [1]
