"""`trainparity run` on scripts whose models have other parameters than at first."""

from pathlib import Path

import pytest

from tests.support.scripts import trainparity
from tests.support.warm import python
from trainparity.parity.recording.trace import Trace

SCRIPT = """
import sys, torch
from torch import nn
torch.manual_seed(0)
way = sys.argv[1]
head = nn.LazyLinear(2) if way == "lazy" else nn.Linear(4, 2)
model = nn.Sequential(head)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    if way == "at the first step" and step == 0:
        model(torch.randn(2, 4))
    if (way == "at the first step" and step == 0) or (way == "later" and step == 3):
        model.append(nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
print("the script's end")
"""


@pytest.mark.parametrize(("way", "steps"), [("lazy", 6), ("at the first step", 6), ("later", 3)])
def test_a_script_whose_model_changes_is_recorded_as_far_as_it_goes(way: str, steps: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    result = trainparity("run", "a", "--twins", 0, "--steps", 0, "--", python(), "train.py", way, cwd=tmp_path)
    assert (result.returncode, "the script's end" in result.stdout) == (0, True), result.stderr
    assert len(Trace.load(tmp_path / "a").layout.steps) == steps
    ended = "recorded no further: from step 3 on the model has other parameters: added 1.weight, 1.bias"
    assert (ended in result.stderr) == (way == "later")
