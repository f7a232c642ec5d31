"""A signal ends a command wherever it comes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SWALLOWS = """
import os, signal
try:
    os.kill(os.getpid(), signal.{name})
    for _ in range(1000):  # the handler runs between two instructions
        pass
except:
    pass
"""
MAIN = """
import time
from trainparity.exits import exit_code
def work():
    import swallows
    time.sleep(60)
raise SystemExit(exit_code(work))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_no_module_that_is_imported_can_swallow_a_signal(name: str, tmp_path: Path) -> None:
    (tmp_path / "swallows.py").write_text(SWALLOWS.format(name=name))
    done = subprocess.run(
        [sys.executable, "-c", MAIN], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (128 + signal.Signals[name], f"stopped by {name}\n")
