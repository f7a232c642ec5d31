"""Where no process is there to fork from."""

import multiprocessing.spawn
import os

import pytest

from trainparity.launch.warm import start_warm, warm_workers


def test_without_a_process_to_fork_from_each_starts_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no more processes are allowed."""
    monkeypatch.setattr(multiprocessing.spawn, "_python_exe", b"/bin/false")
    with warm_workers():
        assert start_warm("json.tool", "spec.json", os.environ) is None
