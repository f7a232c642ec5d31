"""Processes of a command that is stopped, while they still wait for what they are given."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

PROGRAM = """
import os, signal, sys, time
from multiprocessing import popen_spawn_posix

from trainparity.controls import processes
from trainparity.controls.processes import each
from trainparity.exits import exit_code


def work(item):
    time.sleep(600)


def stopped_in(start, nth=int(sys.argv[1])):
    calls = []

    def launched(*parts):
        start(*parts)
        calls.append(parts)
        if len(calls) == nth:
            os.kill(os.getpid(), signal.SIGTERM)

    return launched


def main():
    popen_spawn_posix.Popen._launch = stopped_in(popen_spawn_posix.Popen._launch)
    processes.usable_cores = lambda: 2  # a worker of these tests may use one
    for _ in each(work, [bytes(1 << 20)] * 8):
        pass


if __name__ == "__main__":
    sys.exit(exit_code(main))
"""


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_a_stop_ends_processes_that_are_given_more_than_a_pipe_holds(nth: int, tmp_path: Path) -> None:
    """One of which has only just been started: what it is to do fills the pipe to it.

    Args:
        nth: The process within whose start the signal comes, before its starter knows of it; 0: after the first.
    """
    (program := tmp_path / "program.py").write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(program), str(nth)], stderr=subprocess.PIPE, text=True) as owner:
        try:
            while not nth and len(psutil.Process(owner.pid).children()) < 2:  # the first is multiprocessing's own
                assert owner.poll() is None
            if not nth:
                owner.send_signal(signal.SIGTERM)
            _, errors = owner.communicate(timeout=60)
        finally:
            owner.kill()
    assert owner.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM\n" in errors, errors
