"""What `trainparity compare` says of folders that hold no complete run, and of runs that go on beyond their twins."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trainparity
from tests.support.report_tree import status
from tests.support.synthetic import scaled, trace
from trainparity.parity.compare import compare_folders, compare_in_detail
from trainparity.parity.recording.trace import Trace
from trainparity.records.recorded import RunRecord
from trainparity.records.verdict import Verdict


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_run_of_the_pipeline_that_did_not_train_is_not_called_cannot_judge(tmp_path: Path, outcome: str) -> None:
    status("ddp", status=outcome, reason="no GPU").write(tmp_path / "ddp" / "status.json")
    found = compare_folders(tmp_path / "ddp", tmp_path / "other")
    assert (found.verdict, found.reason, found.exit_code) == (
        outcome,
        f"ddp {'was ' if outcome == 'skipped' else ''}{outcome}: no GPU",
        2,
    )


def test_an_empty_folder_and_a_damaged_status_cannot_be_judged(tmp_path: Path) -> None:
    assert compare_folders(tmp_path, tmp_path).verdict == "cannot judge"
    (tmp_path / "status.json").write_text("{")
    found = compare_folders(tmp_path, tmp_path)
    assert found.verdict == "cannot judge" and "status.json: damaged" in (found.reason or "")


def every_third(whole: Trace) -> Trace:
    """Return what `interval=3` records of a run."""
    layout = whole.layout.model_copy(update={"steps": whole.layout.steps[::3]})
    return Trace(layout, {name: array[::3].contiguous() for name, array in whole.arrays.items()})


def shorter(whole: Trace) -> Trace:
    return trace(twin=whole.layout.twin, steps=3)


Cut = Callable[[Trace], Trace]
"""From a twin to one that covers fewer steps."""


def of_seven_steps(folder: Path, cut: Cut, **right: Any) -> Verdict:
    """Compare two runs of 7 steps whose twins cover fewer."""
    trace(steps=7).save(folder / "a")
    trace(steps=7, **right).save(folder / "b")
    for twin in (1, 2):
        cut(trace(steps=7, twin=twin)).save(folder / "a" / "twins" / str(twin))
    return compare_folders(folder / "a", folder / "b")


@pytest.mark.parametrize("cut", [shorter, every_third])
def test_a_fault_in_a_step_that_no_twin_covers_is_no_pass(cut: Cut, tmp_path: Path) -> None:
    found = of_seven_steps(tmp_path, cut, gradients=scaled(1.01, since=4))
    assert found.verdict != "bitwise" and found.exit_code in (1, 2), found.reason


def test_what_twins_cover_is_said(tmp_path: Path) -> None:
    found = of_seven_steps(tmp_path, shorter, parts=2)
    assert found.verdict == "cannot judge"
    assert found.reason == (
        "twins cover 3 of 7 traced steps, to step 2 of 6: these are equivalent, and no more can be said"
    )
    assert "record the twins over as many steps" in str(found.advice)


def test_a_fault_in_a_step_that_twins_cover_is_different_though_they_end_early(tmp_path: Path) -> None:
    found = of_seven_steps(tmp_path, shorter, gradients=scaled(1.01, since=1))
    assert (found.verdict, found.step) == ("different", 1)


@pytest.mark.parametrize("cut", [shorter, every_third])
def test_equal_bits_need_no_twin(cut: Cut, tmp_path: Path) -> None:
    found = of_seven_steps(tmp_path, cut)
    assert (found.verdict, found.steps_compared) == ("bitwise", 7)


def test_a_command_that_failed_is_named_beside_the_verdict_on_its_steps(tmp_path: Path) -> None:
    for name, code in (("a", 0), ("b", 3), ("c", 0)):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2 if name == "b" else 0.1)
        with trainparity.record(model, optimizer, tmp_path / name):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        RunRecord(
            command="python train.py", steps=1, stopped=False, exit_code=code, twins=0, model="Linear", optimizer="SGD",
            beside=[], not_recorded=[],
        ).keep(tmp_path / name)  # fmt: skip
    found = compare_folders(tmp_path / "a", tmp_path / "b", names=("A", "B"))
    assert found.verdict == "different"
    assert (found.reason or "").startswith("B failed with exit code 3 after 1 step; ")
    assert compare_in_detail(tmp_path / "b", tmp_path / "b")[0].reason
    assert compare_folders(tmp_path / "a", tmp_path / "c").reason is None


STOPS = """
import sys, torch, trainparity
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = trainparity.record(model, optimizer, sys.argv[1], interval=1)
for step in range(6):
    if step == int(sys.argv[2]):
        raise LookupError("no more samples")
    optimizer.zero_grad()
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_what_ended_a_training_is_said_beside_its_steps(tmp_path: Path) -> None:
    for name, stop in (("whole", 9), ("short", 4)):
        command = [sys.executable, "-c", STOPS, str(tmp_path / name), str(stop)]
        subprocess.run(command, check=name == "whole", stderr=subprocess.PIPE)
    found = compare_folders(tmp_path / "whole", tmp_path / "short", names=("A", "B"))
    assert found.verdict == "cannot judge"
    assert str(found.reason).endswith("; B: the training ended with LookupError"), found.reason


def test_a_folder_of_any_name_is_called_by_one_line(tmp_path: Path) -> None:
    for name in ("a\nb", "c\td"):
        trace().save(tmp_path / name)
    for found in (
        compare_folders(*map(tmp_path.joinpath, ("a\nb", "c\td"))),
        compare_in_detail(tmp_path / "a\nb", tmp_path / "c\td")[0],
    ):
        assert (found.left, found.right) == (
            f"{tmp_path}/a\ufffdb",
            f"{tmp_path}/c\ufffdd",
        ) and found.verdict == "bitwise"
