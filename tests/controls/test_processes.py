"""Processes of a command that is stopped, while they still wait for what they are given."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil

PROGRAM = """
import sys, time

from trainparity.controls.processes import each
from trainparity.exits import exit_code


def work(item):
    time.sleep(600)


def main():
    for _ in each(work, [bytes(1 << 20)] * 8):
        pass


if __name__ == "__main__":
    sys.exit(exit_code(main))
"""


def test_a_stop_ends_processes_that_are_given_more_than_a_pipe_holds(tmp_path: Path) -> None:
    """One of which has only just been started: what it is to do fills the pipe to it."""
    (program := tmp_path / "program.py").write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(program)], stderr=subprocess.PIPE, text=True) as owner:
        try:
            while len(psutil.Process(owner.pid).children()) < 2:  # the first is multiprocessing's own
                assert owner.poll() is None
            owner.send_signal(signal.SIGTERM)
            _, errors = owner.communicate(timeout=60)
        finally:
            owner.kill()
    assert owner.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM\n" in errors, errors
