"""How a process ends whose work is done."""

import subprocess
import sys

import pytest

from trainparity.lingering import leave

LINGERS = """
import multiprocessing, sys, threading, time
from trainparity import lingering

def sleep():
    time.sleep(60)

lingering.GRACE_S = 0.2
if "no threads" in sys.argv:
    def refuse(*_):
        raise RuntimeError("can't start new thread")
    threading._start_new_thread = refuse
if "thread" in sys.argv:
    threading.Thread(target=sleep, name="uploader").start()
if "process" in sys.argv:
    multiprocessing.get_context("fork").Process(target=sleep, name="server").start()
print("an answer")
lingering.leave(1)
"""


@pytest.mark.parametrize("what", [["thread"], ["process"], ["thread", "process"], [], ["no threads"]], ids="-".join)
def test_a_process_ends_whatever_was_started_in_it(what: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINGERS, *what], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout) == (1, "an answer\n")
    assert ("uploader" in done.stderr, "server" in done.stderr) == ("thread" in what, "process" in what)
    assert bool(done.stderr) == bool({"thread", "process"} & {*what})


def test_a_caller_that_catches_the_end_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainparity.lingering.GRACE_S", 0.0)
    with pytest.raises(SystemExit) as ended:
        leave(3)
    assert ended.value.code == 3
