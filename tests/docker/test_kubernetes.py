"""The node of deploy/kubernetes.yaml as two containers, started as a kubelet would: no cluster is here."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.docker_project import Project

pytestmark = pytest.mark.docker

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes.yaml"
_, RUNTIME, _ = yaml.safe_load_all(MANIFEST.read_text())
POD: dict[str, Any] = RUNTIME["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
FIRST = "trainparity-node-0-0.trainparity"  # as Trainer names it


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def mounts(project: Project) -> Iterator[str]:
    """Yield options for the pod's volumes: the claim is the project's folder, all others are empty."""
    empty = {volume["name"] for volume in POD["volumes"] if "emptyDir" in volume}
    for mount in CONTAINER["volumeMounts"]:
        path = mount["mountPath"]
        yield f"--tmpfs={path}:exec,mode=1777" if mount["name"] in empty else f"--volume={project.folder}:{path}"


@pytest.fixture
def network(project: Project) -> Iterator[str]:
    name = f"{project.name}-kubernetes"
    docker("network", "create", "--internal", name)
    yield name
    docker("rm", "--force", f"{name}-0", f"{name}-1")
    docker("network", "rm", name)


def test_two_nodes_train_one_run_and_stop_when_asked(project: Project, network: str) -> None:
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    binary, *rest = CONTAINER["command"]
    locked = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", f"--user={project.uid}"]
    for rank in (0, 1):
        trainer = {"NNODES": 2, "NODE_RANK": rank, "MASTER_ADDR": FIRST, "MASTER_PORT": 29500}
        docker(
            "run", "--detach", f"--name={network}-{rank}", f"--network={network}", *locked, *mounts(project),
            *(["--network-alias", FIRST] if rank == 0 else []),
            *(f"--env=PET_{name}={value}" for name, value in trainer.items()),
            f"--workdir={CONTAINER['workingDir']}", f"--entrypoint={binary}",
            "trainparity:cpu", *rest, "trainparity", "train", "ddp",
        )  # fmt: skip
    assert docker("wait", f"{network}-0") == "0", docker("logs", f"{network}-0")
    assert project.status("ddp")["status"] == "trained"
    joined = docker("logs", f"{network}-1")
    assert joined.splitlines() == ["joining ddp", "done"]
    docker("stop", f"--time={POD['terminationGracePeriodSeconds']}", f"{network}-1")
    assert docker("inspect", "--format={{.State.ExitCode}}", f"{network}-1") == "0"
