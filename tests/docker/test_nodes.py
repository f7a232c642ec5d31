"""DDP over two containers as two nodes: own addresses, own network."""

import json
import subprocess
import time

import pytest

from tests.support.docker_project import Project

pytestmark = pytest.mark.docker

UP = ("--profile", "multinode", "up", "--abort-on-container-exit", "--exit-code-from", "node-0", "node-0", "node-1")


@pytest.fixture(scope="module")
def nodes(project: Project) -> Project:
    project.edit("train", "max_steps", value=6)
    return project


def down(project: Project) -> None:
    project.compose("--profile", "multinode", "down")


@pytest.mark.timeout(600)
def test_two_nodes_train_the_same_as_one_process(nodes: Project) -> None:
    done = nodes.compose(*UP)
    down(nodes)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert json.loads((nodes.folder / "runs/environment.json").read_text())["nodes"] == 2
    assert "joining ddp" in done.stdout and "joining fsdp-offload" in done.stdout
    pairs = json.loads((nodes.folder / "reports/parity.json").read_text())["pairs"]
    for name in ("ddp", "fsdp-offload", "ddp-gradaccum"):
        assert pairs[name]["verdict"] in ("bitwise", "equivalent"), pairs[name]


def test_a_killed_node_ends_the_run_as_failed_and_the_next_try_goes_on(nodes: Project) -> None:
    nodes.edit("train", "max_steps", value=58)
    nodes.edit("timing", "steps", value=20_000)  # long enough to be killed in
    train = {"NODE_COMMAND": "trainparity train ddp"}
    try:
        assert nodes.compose("--profile", "multinode", "up", "--detach", "node-0", "node-1", **train).returncode == 0
        wait_until_said(nodes, "ddp timing: step")
        subprocess.run(["docker", "kill", f"{nodes.name}-node-1-1"], check=True, capture_output=True)
        assert exit_code(nodes) == 1
        said = nodes.compose("--profile", "multinode", "logs", "node-0").stdout
        assert "ddp: failed: rank" in said
        assert nodes.status("ddp")["status"] == "failed"

        nodes.edit("timing", "steps", value=3)
        nodes.compose("--profile", "multinode", "up", "--detach", "node-0", "node-1", **train)
        assert exit_code(nodes) == 0
        assert nodes.status("ddp")["status"] == "trained"
    finally:
        down(nodes)
    left = subprocess.run(["docker", "ps", "-aq", "--filter", f"name={nodes.name}"], capture_output=True, check=True)
    assert not left.stdout


def wait_until_said(project: Project, text: str) -> None:
    """Wait until the first node says something."""
    deadline = time.monotonic() + 200
    while text not in (said := project.compose("--profile", "multinode", "logs", "node-0").stdout):
        assert time.monotonic() < deadline, said
        time.sleep(0.5)


def exit_code(project: Project) -> int:
    """Wait for the first node to end."""
    done = subprocess.run(["docker", "wait", f"{project.name}-node-0-1"], capture_output=True, text=True, check=True)
    return int(done.stdout)
