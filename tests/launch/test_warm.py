"""Processes forked from a warm one, and where there is none to fork from."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from trainparity.launch import warm
from trainparity.launch.variables import of_workers
from trainparity.launch.warm import start_warm, warm_workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone forks workers")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that takes seconds to import elsewhere, and a program that says what it is."""
    (tmp_path / "slow.py").write_text("VALUE = 1\n")
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
            import os, pathlib, random, sys, tempfile
            import torch
            loaded = "slow" in sys.modules
            facts = [__name__, loaded, sys.argv[1:], os.getcwd(), os.environ.get("OWN"), sys.path[0]]
            facts.append(torch.rand(1).item())
            pathlib.Path(sys.argv[1]).write_text(repr(facts))
            print(random.random())
            sys.exit(3)
        """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(warm, "_MODULES", ["torch", "numpy", "slow"])
    monkeypatch.delenv(warm.WARM, raising=False)
    return tmp_path


def environment(**others: str) -> dict[str, str]:
    return dict(os.environ) | of_workers(1) | others


@pytest.mark.slow
def test_a_forked_process_is_what_python_m_would_start(own: Path) -> None:
    with warm_workers():
        first = start_warm("program", "a", environment(OWN="1"))
        second = start_warm("program", "b", environment(OWN="2"))
        assert first and second
        assert (first.wait(), second.wait()) == (3, 3)
    assert warm.WARM not in os.environ
    found = [eval((own / name).read_text()) for name in "ab"]
    assert found[0][:-1] == ["__main__", True, ["a"], str(own), "1", str(own)]
    assert found[1][:-1] == ["__main__", True, ["b"], str(own), "2", str(own)]
    assert found[0][-1] != found[1][-1]  # each draws its own random numbers


def test_without_a_process_to_fork_from_each_starts_by_itself(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with warm_workers():
        assert start_warm("program", "a", environment()) is None
    assert start_warm("program", "a", environment()) is None
    monkeypatch.setenv(warm.WARM, str(own / "nobody"))
    assert start_warm("program", "a", environment()) is None


def test_no_process_is_forked_that_would_be_another(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warm_workers():
        assert (process := start_warm("program", "a", environment())) and process.wait() == 3
        assert start_warm("program", "a", environment(PYTHONHASHSEED="7")) is None
        assert start_warm("program", "a", environment(TORCHINDUCTOR_MAX_AUTOTUNE="1")) is None
        of_sklearn = {"KMP_INIT_AT_FORK": "FALSE", "KMP_DUPLICATE_LIB_OK": "True"}
        for others in ({"OMP_NUM_THREADS": "2"}, of_sklearn):
            assert (process := start_warm("program", "a", environment(**others))) and process.wait() == 3
        (own / "slow.py").write_text("VALUE = 2\n")
        assert start_warm("program", "a", environment()) is None  # it has imported what was edited since
        monkeypatch.setattr(sys, "prefix", "/another")
        assert start_warm("program", "a", environment()) is None


@pytest.mark.slow
def test_it_imports_nothing_until_it_is_needed_and_ends_with_who_started_it(own: Path) -> None:
    code = (
        "import time; from trainparity.launch import warm; warm._MODULES[:] = ['torch', 'numpy', 'slow']\n"
        "with warm.warm_workers():\n    input(); warm.wake(); input()"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True)
    try:
        (server,) = _children(caller.pid)
        assert not _has_imported_torch(server)
        assert caller.stdin
        print(file=caller.stdin, flush=True)
        while not _has_imported_torch(server):
            assert server.is_running() and caller.poll() is None
        caller.kill()
        assert server.wait(timeout=30) is None
    finally:
        caller.kill()
        caller.communicate()


def _children(process: int) -> list[psutil.Process]:
    while not (found := psutil.Process(process).children()) or "fork_server" not in " ".join(found[0].cmdline()):
        pass
    return found


def _has_imported_torch(process: psutil.Process) -> bool:
    return any("libtorch_cpu" in each.path for each in process.memory_maps())
