import errno
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from trainparity.records import tensors
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


def test_what_the_system_refuses_is_an_error_of_the_system(tmp_path: Path) -> None:
    """Safetensors raises one of its own, also where a disk is full."""
    with pytest.raises(FileNotFoundError) as raised:
        save({"a": torch.zeros(9)}, tmp_path / "nowhere/a")
    assert raised.value.filename == str(tmp_path / "nowhere/a")


@pytest.mark.parametrize(
    "text",
    [
        "Error while serializing: I/O error: No space left on device (os error 28)",
        'Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
    ],
)
def test_every_form_of_what_the_system_refuses_is_read(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's versions write it differently."""

    def refuse(*_: object) -> None:
        raise SafetensorError(text)

    monkeypatch.setattr(tensors, "save_file", refuse)
    with pytest.raises(OSError, match="No space left on device") as raised:
        save({"a": torch.zeros(9)}, tmp_path / "a")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "a"))
