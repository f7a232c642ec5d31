import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.machines import LINUX, MACHINES
from trainparity.environment import NODES, Environment, detect, num_nodes
from trainparity.errors import UserError


def test_the_fingerprint_is_stable_and_tells_machines_apart() -> None:
    assert detect().fingerprint == detect().fingerprint
    assert len({environment.fingerprint for environment in MACHINES.values()}) == len(MACHINES)
    assert LINUX.model_copy(update={"image": "sha256:1"}).fingerprint != LINUX.fingerprint
    assert Environment.model_validate_json(LINUX.model_dump_json()).fingerprint == LINUX.fingerprint


def test_torch_is_told_from_its_files_as_it_tells_of_itself() -> None:
    found = detect()
    assert (found.torch, found.cuda) == (torch.__version__, torch.version.cuda)
    assert found.count("cuda") == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert found.count("mps") == torch.backends.mps.is_available()


@pytest.mark.skipif(sys.platform != "linux" or torch.cuda.is_available(), reason="torch is asked for its GPUs here")
def test_without_a_driver_torch_is_not_imported() -> None:
    program = "import sys; from trainparity.environment import detect; detect(); print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


COMPILER = "#!/bin/sh\necho its version\necho more\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the compiler is a shell script")
@pytest.mark.parametrize(
    ("cxx", "expected"), [("", None), ("nowhere", None), ("made", "its version"), ("made -O1", "its version")]
)
def test_the_compiler_is_the_one_that_torch_would_call(
    cxx: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").write_text(COMPILER)
    (tmp_path / "made").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CXX", cxx)
    assert detect().compiler == expected


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "9" * 30])
def test_a_number_of_nodes_that_is_none_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODES, text)
    with pytest.raises(UserError, match=f"{NODES} is '{text}'; it must be a number from 1"):
        num_nodes()
    monkeypatch.setenv(NODES, "2")
    assert num_nodes() == 2
