"""Models laid out over the ranks in every usual way: which ranks see the same samples, and their state on disk."""

import json
import subprocess
from typing import Any

import pytest

from tests.support.scripts import torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("meshes") / "found.json"
    script = ["-m", "tests.support.meshes", str(path)]
    done = subprocess.run([*torchrun(4).split(), *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    content: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return content


@pytest.mark.slow
def test_ranks_that_train_one_replica_together_are_a_group(found: dict[str, dict[str, Any]]) -> None:
    assert {name: of["groups"] for name, of in found.items()} == {
        "ddp": [0, 1, 2, 3],
        "fsdp": [0, 1, 2, 3],
        "hybrid-fsdp": [0, 1, 2, 3],
        "tensor-parallel": [0, 0, 0, 0],
        "tensor-parallel-pairs": [0, 0, 2, 2],
        "fsdp-tensor-parallel": [0, 0, 2, 2],
    }


@pytest.mark.parametrize("alike", ["moved", "whole", "loaded"])
def test_every_rank_has_its_part_of_one_state(alike: str, found: dict[str, dict[str, Any]]) -> None:
    assert [name for name, of in found.items() if not of[alike]] == []
