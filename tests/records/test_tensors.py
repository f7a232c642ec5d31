from pathlib import Path

import torch
from safetensors.torch import load_file

from trainparity.records.tensors import save


def test_tensors_that_share_memory_are_all_written(tmp_path: Path) -> None:
    """As tied weights do, the same tensor twice, and parts of one."""
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "whole": whole, "again": whole, "part": whole[:2], "turned": whole.T, "repeated": torch.ones(1).expand(4),
        "trained": torch.nn.Parameter(torch.ones(2)), "none": torch.zeros(0), "one": torch.tensor(1),
    }  # fmt: skip
    save(tensors, tmp_path / "a")
    found = load_file(tmp_path / "a")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
