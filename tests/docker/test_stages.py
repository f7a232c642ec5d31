"""`runtime: docker`: the pipeline on the host, each training stage in a container."""

import json
import signal
import subprocess
import sys
import time

import pytest

import docker
from tests.support.docker_project import Project
from trainparity.records import layout

pytestmark = pytest.mark.docker


def containers() -> list[str]:
    found = docker.from_env().containers.list(all=True)
    return [c.name for c in found if c.name.startswith("trainparity-") and "train" in c.name.split("-")[2:]]


def test_stages_run_in_containers_and_are_the_same_training_as_on_the_host(own_project: Project) -> None:
    project = own_project
    first = project.dvc("repro", "train@cpu")
    assert first.returncode == 0, first.stdout + first.stderr
    state = layout.state(project.folder / "runs", "cpu")
    before = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}

    project.edit("runtime", value="docker")
    contained = project.dvc("repro", "train@cpu", "counterpart", "train@mps")
    assert contained.returncode == 0, contained.stdout + contained.stderr
    for stage in ("reference", "train@cpu", "counterpart"):
        assert f"Running stage '{stage}'" in contained.stdout
    environment = json.loads((project.folder / "runs/environment.json").read_text())
    assert environment["image"] and len(environment["image"]) == 16
    assert project.status("cpu")["status"] == "trained"
    assert "on the host, as no container has Metal" in contained.stdout
    # The same versions: not a bit differs.
    assert (state / "weights.safetensors").read_bytes() == before["weights.safetensors"]
    made = [state, *state.rglob("*")]
    assert {path.stat().st_uid for path in made} == {project.uid}

    project.edit("runtime", value="host")
    back = project.dvc("repro", "train@cpu")
    assert back.returncode == 0, back.stdout + back.stderr
    assert "Running stage 'train@cpu'" not in back.stdout  # restored from the run cache
    assert {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()} == before
    assert containers() == []


def test_the_pipeline_holds_host_and_container_against_each_other(own_project: Project) -> None:
    done = own_project.dvc("repro", "compare")
    assert done.returncode == 0, done.stdout + done.stderr
    pairs = json.loads((own_project.folder / "reports/parity.json").read_text())["pairs"]
    pair = pairs["host-container"]
    assert pair["verdict"] == "bitwise", pair


STAGE = [sys.executable, "-m", "trainparity.stages", "train", "ddp"]


def long_stage(project: Project) -> "subprocess.Popen[str]":
    """Start a stage that trains in a container for long; its reference is trained first."""
    project.edit("runtime", value="docker")
    project.edit("train", "max_steps", value=1000)
    assert project.dvc("repro", "reference").returncode == 0
    return subprocess.Popen(STAGE, cwd=project.folder, env=project.environment(), stderr=subprocess.PIPE, text=True)


def test_what_is_in_a_container_ends_with_the_stage_that_is_killed(own_project: Project) -> None:
    project, stage = own_project, long_stage(own_project)
    project.wait_for(project.folder / ".trainparity/work/runs/ddp/checkpoints")
    (name,) = containers()
    docker.from_env().containers.get(name).remove(force=True)
    _, said = stage.communicate(timeout=60)
    assert stage.returncode == 2 and "run it again to resume" in said
    begun = project.folder / ".trainparity/work/runs/ddp/spec.json"
    begun.unlink()
    again = subprocess.Popen(STAGE, cwd=project.folder, env=project.environment(), stderr=subprocess.DEVNULL)
    project.wait_for(begun)
    again.kill()
    assert docker.from_env().containers.get(name).wait(timeout=60)["StatusCode"] != 0
    resumed = subprocess.run(
        STAGE, cwd=project.folder, env=project.environment(), capture_output=True, text=True, check=False
    )
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "was killed; what it started ends now" in resumed.stdout
    assert project.status("ddp")["status"] == "trained" and containers() == []


def test_a_stopped_stage_takes_its_container_with_it_and_a_deadline_is_said(own_project: Project) -> None:
    project, stage = own_project, long_stage(own_project)
    project.wait_for(project.folder / ".trainparity/work/runs/ddp/spec.json")
    stage.send_signal(signal.SIGTERM)
    _, said = stage.communicate(timeout=120)
    assert stage.returncode == 128 + signal.SIGTERM and "resume from the last checkpoint" in said
    assert containers() == []

    project.edit("deadline_s", value=4)
    done = subprocess.run(
        STAGE, cwd=project.folder, env=project.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "deadline_s: 4" in done.stderr
    assert containers() == []


def test_of_two_stages_at_once_the_second_takes_what_the_first_trained(own_project: Project) -> None:
    project = own_project
    project.edit("runtime", value="docker")
    project.edit("deadline_s", value=None)
    project.edit("train", "max_steps", value=20)
    assert project.dvc("repro", "reference").returncode == 0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    first, second = (subprocess.Popen(STAGE, cwd=project.folder, env=project.environment(), **pipes) for _ in range(2))
    while first.poll() is None and second.poll() is None:
        time.sleep(0.05)
    weights = layout.state(project.folder / "runs", "ddp") / "weights.safetensors"
    trained = weights.stat().st_mtime_ns
    said = [stage.communicate(timeout=300)[0] for stage in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert sum("waiting for" in text for text in said) == 1, said
    assert weights.stat().st_mtime_ns == trained and containers() == []


def test_a_stopped_engine_is_one_sentence(own_project: Project) -> None:
    own_project.edit("runtime", value="docker")
    nowhere = own_project.environment() | {"DOCKER_HOST": "unix:///nowhere.sock"}
    done = subprocess.run(
        [sys.executable, "-m", "trainparity.stages", "probe"], cwd=own_project.folder, env=nowhere,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "no Docker engine answers" in done.stderr and "set `runtime: host`" in done.stderr
