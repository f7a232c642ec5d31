"""A container whose shared memory is too small for its loader's batches."""

import re

import pytest

from tests.support.docker_project import Project
from trainparity.records import layout

pytestmark = pytest.mark.docker

STAGES = ("prepare", "probe", "reference", "train cpu")
TRAIN = " && ".join(f"python -m trainparity.stages {stage}" for stage in STAGES)


def test_too_little_shared_memory_is_said_at_once_and_the_training_is_the_same(project: Project) -> None:
    """A batch is 3 MiB, shared memory 1."""
    project.edit("dataset", value={"name": "fake", "shape": [3, 64, 64], "size": 320})
    loader = {"workers": 2, "start_method": "fork"}
    configuration = {"strategy": "single", "device": "cpu", "precision": "fp32", "loader": loader}
    project.edit("configs", "cpu", value=configuration)
    done = project.docker("trainparity:cpu", "sh", "-c", TRAIN, options=["--shm-size", "1m"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.status("cpu")["status"] == "trained"
    assert re.search(
        r"loading batch 1 of 6 in worker processes failed: RuntimeError: unable to allocate shared memory.* "
        r"num_workers 2 x prefetch_factor 2 batches of 3.00 MiB wait in shared memory, which has 1 MiB, .*--shm-size.*"
        r"This process loads the remaining batches, which are the same",
        done.stderr,
    ), done.stderr
    states = [layout.state(project.folder / "runs", run) for run in ("reference-fp32", "cpu")]
    left, right = (state / "weights.safetensors" for state in states)
    assert left.read_bytes() == right.read_bytes()
