import json
import subprocess
import sys
from pathlib import Path

from tests.runs import prepared


def test_distributed_runs_are_never_different_over_seeds(tmp_path: Path) -> None:
    prepared(tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = ["-m", "tests.strategies.ranks_over_seeds", str(tmp_path), "6"]
    done = subprocess.run([*torchrun, *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results) == 24
    assert {name: r for name, r in results.items() if r["verdict"] not in ("bitwise", "equivalent")} == {}
    assert all(r["ranks_agree"] for r in results.values())
    assert max(r["distance_over_floor"] for r in results.values()) < 8
