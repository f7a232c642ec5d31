"""Which ranks see the same samples, told from how a model's parameters are laid out over the ranks."""

import json
import subprocess
from pathlib import Path

from tests.support.scripts import torchrun


def test_ranks_that_train_one_replica_together_are_a_group(tmp_path: Path) -> None:
    script = ["-m", "tests.support.meshes", str(tmp_path / "found.json")]
    done = subprocess.run([*torchrun(4).split(), *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert {name: groups for name, (groups, *_) in found.items()} == {
        "ddp": [0, 1, 2, 3],
        "fsdp": [0, 1, 2, 3],
        "hybrid-fsdp": [0, 1, 2, 3],
        "tensor-parallel": [0, 0, 0, 0],
        "tensor-parallel-pairs": [0, 0, 2, 2],
        "fsdp-tensor-parallel": [0, 0, 2, 2],
    }
    assert [name for name, (_, alike, _) in found.items() if not alike] == []
    assert [name for name, (*_, whole) in found.items() if not whole] == []
