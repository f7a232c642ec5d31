"""Tests that need what this machine lacks are skipped, with the reason."""

import shutil
import subprocess
from functools import cache

import pytest
import torch


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
            engine = subprocess.run(["docker", "info"], capture_output=True, check=False)
            return None if engine.returncode == 0 else "no Docker engine answers"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in ("cuda", "mps", "docker"):
        if item.get_closest_marker(mark) and (reason := missing(mark)):
            pytest.skip(f"{mark}: {reason}")
