"""How a stage is started, and by whom."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("killed", [True, False])
def test_a_stage_whose_dvc_was_killed_while_it_started_does_nothing(tmp_path: Path, killed: bool) -> None:
    """The shell is the DVC: it ends before the stage can look for it, or waits for it."""
    stage = f"{sys.executable} -m trainparity.stages validate"
    started = f"(sleep 0.5; exec {stage}) &" if killed else f"{stage}; true"
    done = subprocess.run(
        ["sh", "-c", started], cwd=tmp_path, env=os.environ | {"DVC_STAGE": "validate"}, start_new_session=True,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ("params.yaml" in done.stderr) is not killed, done.stderr
