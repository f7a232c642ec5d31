"""How long torchrun waits for stopped ranks, in whatever version of torch."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCHER = """
import sys
from pathlib import Path
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.launcher.api import elastic_launch
from trainparity.launch.nodes import Nodes, invite

folder, grace_s = Path(sys.argv[1]), int(sys.argv[2])
nodes = Nodes.from_environment()
config = nodes.launch_config(invite(folder / "spec.json", 2, nodes), first=True, grace_s=grace_s)
try:
    elastic_launch(config, sys.executable)(str(folder / "rank.py"), str(folder))
except SignalException:
    print("stopped")
"""

RANK = """
import os, signal, sys, time
from pathlib import Path

folder, rank = Path(sys.argv[1]), os.environ["RANK"]

def stop(*_):
    time.sleep(4)  # as long as its checkpoint takes
    (folder / f"checkpoint-{rank}").touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, stop)
(folder / f"started-{rank}").touch()
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("grace_s", "kept"), [(1, set()), (30, {"checkpoint-0", "checkpoint-1"})])
def test_stopped_ranks_have_the_time_that_they_are_given(tmp_path: Path, grace_s: int, kept: set[str]) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path), str(grace_s)], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("started-*"))) < 2:
        assert launcher.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)  # torch's launcher knows of its ranks only after it has started all of them
    launcher.send_signal(signal.SIGTERM)
    output, _ = launcher.communicate(timeout=60)
    assert output == b"stopped\n"
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == kept
