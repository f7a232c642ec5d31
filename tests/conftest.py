"""Tests side by side share out the cores; tests that need what this machine lacks are skipped, with the reason."""

import os

# OpenMP's threads wait in a busy loop otherwise, which takes the cores from whatever else runs: a test took 107 s, not
# 10. It is read where torch is loaded, here and in what tests start.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ.pop("PYTEST_ADDOPTS", None)  # read by now, and not meant for what tests start

import shutil
import signal
import subprocess
from functools import cache

import hypothesis
import pytest
import torch
from threadpoolctl import threadpool_limits

hypothesis.settings.register_profile("here", deadline=None, derandomize=True)
hypothesis.settings.load_profile("here")  # no time that another process takes from us fails a test

os.environ["DVC_NO_ANALYTICS"] = "1"  # of projects that tests make, each command would start a process to report itself

pytest_plugins = ["trainparity.pytest_plugin"]  # in our images the package is mounted, not installed


@cache
def missing(mark: str) -> str | None:
    """Say why tests with a mark can't run here; None if they can."""
    match mark:
        case "cuda":
            return None if torch.cuda.is_available() else "no NVIDIA GPU that torch can use"
        case "mps":
            return None if torch.backends.mps.is_available() else "no Apple GPU that torch can use"
        case _:
            if not shutil.which("docker"):
                return "no docker command"
            if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
                return "no Docker engine answers"
            # They name networks, ports and containers of the engine that all of them share, and take half an hour.
            alone = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) == 1
            return None if alone else "not beside other tests; `.venv/bin/pytest tests/docker` runs them"


def pytest_configure() -> None:
    """Have signals mean what they say, and give each test worker cores of its own, and with it what it starts.

    A shell starts background jobs with SIGINT ignored, `nohup` with SIGHUP, and so do these what they start. Two
    trainings with threads on the same cores spend nine tenths of their time waiting for each other's threads.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if "PYTEST_XDIST_WORKER" not in os.environ or not hasattr(os, "sched_setaffinity"):
        return
    number, count = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    if own := sorted(os.sched_getaffinity(0))[number::count]:
        os.sched_setaffinity(0, own)
    else:  # more workers than cores: this one goes where there is room, with one thread
        os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(max(1, len(own)))
    threadpool_limits(max(1, len(own)))  # NumPy's


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in ("cuda", "mps", "docker"):
        if item.get_closest_marker(mark) and (reason := missing(mark)):
            pytest.skip(f"{mark}: {reason}")
