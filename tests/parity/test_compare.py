"""What `trainparity compare` says of folders that hold no complete run."""

from pathlib import Path

import pytest

from tests.support.report_tree import status
from trainparity.parity.compare import compare_folders


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
