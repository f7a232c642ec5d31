import subprocess
import sys
from pathlib import Path

from tests.support.ranks_over_seeds import RIGHT
from tests.support.runs import Reference, configuration, load, prepared

SEEDS = 3


def test_distributed_runs_are_never_different_over_seeds(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    references = [Reference(tmp_path / str(seed), data, seed=seed) for seed in range(SEEDS)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = ["-m", "tests.support.ranks_over_seeds", str(tmp_path), str(SEEDS)]
    done = subprocess.run([*torchrun, *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    results = {
        (seed, name): reference.judge(load(reference.candidate(name, configuration(**settings, world_size=2))))
        for seed, reference in enumerate(references)
        for name, settings in RIGHT.items()
    }
    assert {key: r.reason for key, r in results.items() if r.verdict not in ("bitwise", "equivalent")} == {}
    assert all(r.ranks_agree for r in results.values())
    assert max(r.distance_over_floor or 0 for r in results.values()) < 8
