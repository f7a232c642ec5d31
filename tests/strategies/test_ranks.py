import os
import subprocess
from pathlib import Path

import pytest

from tests.support.ranks_over_seeds import RIGHT, WRONG
from tests.support.runs import Reference, configuration, load, prepared
from tests.support.scripts import torchrun

SEEDS = 2


@pytest.mark.study
@pytest.mark.parametrize("world_size", list(RIGHT))
def test_distributed_runs_are_never_different_over_seeds(tmp_path: Path, world_size: int) -> None:
    data = prepared(tmp_path)
    references = [Reference(tmp_path / str(seed), data, seed=seed) for seed in range(SEEDS)]
    script = ["-m", "tests.support.ranks_over_seeds", str(tmp_path), str(SEEDS)]
    # Once a rank died of a segmentation fault: then this says where.
    told = os.environ | {"PYTHONFAULTHANDLER": "1"}
    command = [*torchrun(world_size).split(), *script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=told)
    assert done.returncode == 0, done.stderr[-8000:]
    results = {
        (seed, name): reference.judge(load(reference.candidate(name, configuration(**settings, world_size=world_size))))
        for seed, reference in enumerate(references)
        for name, settings in RIGHT[world_size].items()
    }
    assert {key: r.reason for key, r in results.items() if r.verdict not in ("bitwise", "equivalent")} == {}
    assert all(r.ranks_agree for r in results.values())
    assert max(r.distance_over_floor or 0 for r in results.values()) < 8
    reference = references[-1]
    wrong = reference.judge(
        load(reference.candidate("split-by-rank", configuration(**WRONG[world_size], world_size=world_size)))
    )
    assert (wrong.verdict, wrong.cause, wrong.step) == ("different", "samples", 0), wrong
    assert "train one replica together and see different samples" in (wrong.explanation or "")
