"""One owner of a folder at a time, and what it started ends with it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from trainparity.ownership import OWNER, owned

CHILD = """
import time
from trainparity.ownership import end_with_owner
end_with_owner()
print(1, flush=True)
time.sleep(60)
"""
OWNING = f"""
import subprocess, sys
from pathlib import Path
from trainparity.ownership import owned
with owned(Path(sys.argv[1]), print):
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    print(child.pid, flush=True)
    child.wait()
"""


def test_a_child_ends_when_its_owner_is_killed_and_the_next_owner_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    owner = subprocess.Popen([sys.executable, "-c", OWNING, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    said: list[str] = []
    with owned(folder, said.append) as waited:
        assert not waited
        assert _ends(child)
    assert len(said) == 1
    assert f"process {owner.pid} on " in said[0]
    assert "was killed" in said[0]
    with owned(folder, said.append):
        assert len(said) == 1  # an owner that ended by itself is no news


def test_a_child_of_an_owner_that_gave_up_ends_too(tmp_path: Path) -> None:
    with owned(tmp_path / "run", print):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        child.stdout.readline()
    assert OWNER not in os.environ
    assert child.wait(timeout=10) == -signal.SIGKILL


def test_an_owner_that_gave_up_is_not_said_to_be_killed_and_what_it_started_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), owned(tmp_path / "run", print):
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        child.stdout.readline()
        raise KeyboardInterrupt
    said: list[str] = []
    with owned(tmp_path / "run", said.append):
        assert not said and _ends(child.pid)


def test_what_an_owner_starts_does_not_wait_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    with owned(folder, print):
        inside = subprocess.run(
            [sys.executable, "-c", OWNING, str(folder)], capture_output=True, text=True, timeout=20, check=False
        )
    assert inside.returncode == 1
    told = f"{folder}: process {os.getpid()} on {socket.gethostname()} works there and has started this"
    assert told in inside.stderr, inside.stderr


def test_a_lock_file_that_is_damaged_or_removed_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_text('{"tok')
    said: list[str] = []
    with owned(tmp_path / "run", said.append):
        (tmp_path / "run.lock").unlink()
    with owned(tmp_path / "run", said.append):
        pass
    assert said == [f"{tmp_path / 'run'}: its last owner, a process, was killed; what it started ends now"]


def test_a_forked_process_that_lives_on_does_not_keep_the_folder(tmp_path: Path) -> None:
    with owned(tmp_path / "run", print):
        forked = os.fork()
        if not forked:
            time.sleep(30)
            os._exit(0)
    started = time.monotonic()
    with owned(tmp_path / "run", print) as waited:
        assert not waited and time.monotonic() - started < 5
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)


def test_the_next_owner_waits_until_what_a_killed_one_started_is_dead(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNING, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    child = int(owner.stdout.readline())
    os.kill(child, signal.SIGSTOP)  # so that it can't end itself
    while psutil.Process(child).status() != psutil.STATUS_STOPPED:  # until then its other thread may run
        time.sleep(0.01)
    owner.kill()
    owner.wait()
    threading.Timer(3, os.kill, (child, signal.SIGCONT)).start()
    started = time.monotonic()
    with owned(tmp_path / "run", print):
        assert time.monotonic() - started > 2
        assert _ends(child)


def _ends(pid: int) -> bool:
    """Tell whether a process is gone, or a zombie, within seconds: the kernel frees its locks a moment before."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False
