"""The images and compose.yaml with a real engine, on a copy of the project that belongs to an ordinary user."""

import fcntl
import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.docker_project import Project
from trainparity import __version__
from trainparity.records import layout

pytestmark = pytest.mark.docker


def inspect(image: str) -> dict[str, object]:
    done = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)[0]["Config"]
    return found


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_runs_as_nobody_special_and_says_what_it_holds(target: str, images: None) -> None:
    config = inspect(f"trainparity:{target}")
    labels = config["Labels"]
    assert isinstance(labels, dict)
    assert config["User"] == "1000:1000"
    assert labels["org.opencontainers.image.title"] == f"trainparity {target}"
    assert labels["org.opencontainers.image.revision"] and labels["org.opencontainers.image.version"] == __version__
    versions = "import torch; print(torch.__version__.split('+')[0])"
    torch = run("docker", "run", "--rm", f"trainparity:{target}", "python", "-c", versions).stdout.strip()
    assert labels["org.trainparity.torch"] == torch


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_cuda_image_says_what_it_cannot_run_here(project: Project) -> None:
    found = json.loads(project.docker("trainparity:cuda", "trainparity", "doctor", "--json", "-").stdout)
    assert found["environment"]["cuda"] and found["environment"]["image"]
    here = found["configurations"]["cuda-single"]
    assert here["runs"] or "no NVIDIA GPU that torch can use" in here["reason"]
    assert found["configurations"]["compiled"]["runs"]  # the compiler is there


def test_every_service_is_locked_down(project: Project) -> None:
    services = json.loads(project.compose("config", "--format", "json").stdout)["services"]
    assert {"prepare", "train-cpu", "train-cuda", "repro", "compare", "report"} <= set(services)
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] and service["user"] == f"{project.uid}:{project.uid}", name
        assert (service["network_mode"] == "none") == (name != "prepare"), name


def test_a_run_trains_on_real_data_and_belongs_to_the_caller(project: Project) -> None:
    done = project.compose("run", "--rm", "train-cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    state = layout.state(project.folder / "runs", "cpu")
    made = [state, *state.rglob("*")]
    assert {path.stat().st_uid for path in made} == {project.uid}
    assert project.status("cpu")["status"] == "trained"
    # Nothing is trained twice, and another configuration trains on top of it.
    done = project.compose("run", "--rm", "train-cpu", "ddp")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Unable to resolve hostname" not in done.stdout + done.stderr  # gloo, on every rank
    assert "Running stage 'train@ddp'" in done.stdout and "Running stage 'reference'" not in done.stdout


def test_a_mistake_is_one_clear_sentence(project: Project) -> None:
    unknown = project.compose("run", "--rm", "train-cpu", "dpp")
    assert unknown.returncode == 2
    assert "params.yaml: configs: 'dpp' is not one of cpu, mps" in unknown.stderr and "did you mean" in unknown.stderr
    stranger = project.compose("run", "--rm", "train-cpu", UID=str(project.uid + 1))
    assert stranger.returncode == 2
    message = f"user {project.uid + 1} can't write to the project, which belongs to user {project.uid}"
    assert message in stranger.stderr and "export UID GID" in stranger.stderr


@pytest.mark.parametrize("command", [["repro"], ["compare"], ["report"], ["repro", "trainparity", "repro"]])
def test_a_stage_that_fails_has_our_exit_code_not_dvcs(command: list[str], project: Project) -> None:
    before = (project.folder / "params.yaml").read_text()
    project.edit("train", "max_steps", value=-1)
    done = project.compose("run", "--rm", *command)
    project.write("params.yaml", before)
    assert done.returncode == 2, done.stderr
    assert "train.max_steps" in done.stdout + done.stderr


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="here is an NVIDIA driver")
def test_cuda_without_a_gpu_ends_with_one_sentence(project: Project) -> None:
    done = project.compose("run", "--rm", "train-cuda")
    assert done.returncode != 0 and "Traceback" not in done.stdout + done.stderr
    assert 'could not select device driver "nvidia"' in done.stderr


def test_a_full_disk_is_named(project: Project) -> None:
    small = ["--tmpfs", "/workspace/.trainparity:size=64k,mode=1777"]
    done = project.docker("trainparity:cpu", "python", "-m", "trainparity.stages", "train", "cpu", options=small)
    assert "No space left on device" in done.stdout + done.stderr


def test_a_killed_container_leaves_nothing_half_written_and_the_next_run_goes_on(project: Project) -> None:
    project.edit("train", "max_steps", value=50)
    name = f"{project.name}-killed"
    started = project.start("run", "--rm", "--name", name, "train-cpu", "gradaccum")
    project.wait_for(project.folder / ".trainparity/work/runs/gradaccum/spec.json")
    run("docker", "kill", name)
    assert started.wait() != 0
    assert not (project.folder / "runs/state/gradaccum").exists()
    done = project.compose("run", "--rm", "train-cpu", "gradaccum")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.status("gradaccum")["steps"] == 50


@pytest.mark.parametrize("command", [["dvc", "repro"], ["repro"], ["trainparity", "repro"]])
def test_a_killed_containers_lock_does_not_block_the_next(command: list[str], project: Project) -> None:
    holder = {"pid": 1, "cmd": "dvc repro of a killed container"}  # there is a process 1 in every container
    content = json.dumps({"write": {"/workspace/runs/params-valid.txt": holder}, "read": {}})
    project.write(".dvc/tmp/rwlock", content)
    done = project.compose("run", "--rm", "repro", *command, "validate")
    assert done.returncode == 0, done.stderr


def test_a_container_waits_for_another_one_on_the_same_project(project: Project) -> None:
    name = f"{project.name}-waits"
    with project.write(".trainparity/container.lock", "").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        started = project.start("run", "--name", name, "repro", "dvc", "--version")
        try:
            while "waiting for another container" not in run("docker", "logs", name).stderr:
                assert started.poll() is None
                time.sleep(0.1)
            fcntl.flock(held, fcntl.LOCK_UN)
            assert started.wait() == 0
        finally:
            run("docker", "rm", "--force", name)


def test_a_stopped_container_has_written_its_checkpoint(project: Project) -> None:
    project.edit("train", "epochs", value=500)
    project.edit("train", "max_steps", value=500)
    project.edit("parity", "window", value=500)
    name = f"{project.name}-stopped"
    started = project.start("run", "--name", name, "train-cpu")
    try:  # one of the checkpoints that are written every so often shows that it trains
        project.wait_for(project.folder / ".trainparity/work/runs/reference-fp32/checkpoints/run/state.json")
        run("docker", "stop", "--time", "90", name)
        assert started.wait() != 0
        assert "reference-fp32: stopped after step" in run("docker", "logs", name).stderr
    finally:
        run("docker", "rm", "--force", name)
