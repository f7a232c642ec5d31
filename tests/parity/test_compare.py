"""What `trainparity compare` says of folders that hold no complete run."""

from pathlib import Path

import pytest
import torch
from torch import nn

import trainparity
from tests.support.report_tree import status
from trainparity.parity.compare import compare_folders, compare_in_detail
from trainparity.records.recorded import RunRecord


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
    assert found.verdict == "cannot judge" and "not a Status record" in (found.reason or "")


def test_a_command_that_failed_is_named_beside_the_verdict_on_its_steps(tmp_path: Path) -> None:
    for name, code in (("a", 0), ("b", 3)):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if name == "a" else 0.2)
        with trainparity.record(model, optimizer, tmp_path / name):
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        RunRecord(
            command="python train.py", steps=1, stopped=False, exit_code=code, twins=0, model="Linear", optimizer="SGD",
            beside=[], not_recorded=[],
        ).keep(tmp_path / name)  # fmt: skip
    found = compare_folders(tmp_path / "a", tmp_path / "b", names=("A", "B"))
    assert found.verdict == "different"
    assert (found.reason or "").startswith("B failed with exit code 3 after 1 steps; ")
    assert compare_in_detail(tmp_path / "b", tmp_path / "b")[0].reason
    assert compare_folders(tmp_path / "a", tmp_path / "a").reason is None
