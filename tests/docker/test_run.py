"""docker/run with a real engine."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.docker_project import Project

pytestmark = pytest.mark.docker


def start(project: Project, *arguments: str) -> subprocess.Popen[str]:
    """Start docker/run without a terminal."""
    return subprocess.Popen(
        ["docker/run", *arguments], cwd=project.folder, env=project.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_a_configuration_trains_as_the_clones_owner(project: Project) -> None:
    running = start(project, "train-cpu", "gradaccum")
    said, _ = running.communicate()
    assert running.returncode == 0, said
    assert project.status("gradaccum")["status"] == "trained"
    assert (project.folder / "dvc.lock").stat().st_uid == project.uid


def test_the_whole_pipeline_runs_as_the_clones_owner(project: Project) -> None:
    before = (project.folder / "params.yaml").read_text()
    project.edit("configs", value={"gradaccum": {"accumulation_steps": 2}})
    project.edit("pairs", value={})
    project.edit("parallel", value="gradaccum")
    running = start(project, "repro")
    said, _ = running.communicate()
    project.write("params.yaml", before)
    assert running.returncode == 0, said
    reports = project.folder / "reports"
    verdict = json.loads((reports / "parity.json").read_text())["pairs"]["gradaccum"]["verdict"]
    assert verdict in ("bitwise", "equivalent") and (reports / "index.html").stat().st_uid == project.uid


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="here is an NVIDIA driver")
def test_without_nvidias_runtime_it_ends_before_anything_is_built(project: Project) -> None:
    running = start(project, "train-cuda")
    said, _ = running.communicate()
    assert running.returncode == 2
    assert said == (
        "docker/run: this Docker engine has no NVIDIA runtime: install NVIDIA's container toolkit, or run train-cpu\n"
    )


def test_a_mistake_has_the_services_exit_code(project: Project) -> None:
    running = start(project, "train-cpu", "dpp")
    assert "'dpp' is not one of cpu, mps" in running.communicate()[0]
    assert running.returncode == 2
    running = start(project)
    assert "train-cpu [configuration]" in running.communicate()[0]
    assert running.returncode == 2


def test_an_interrupt_without_a_terminal_stops_the_container_with_its_checkpoint(project: Project) -> None:
    for keys in (("train", "epochs"), ("train", "max_steps"), ("parity", "window")):
        project.edit(*keys, value=500)
    running = start(project, "train-cpu")
    project.wait_for(project.folder / ".trainparity/work/runs/reference-fp32/checkpoints/run/state.json")
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode != 0 and "reference-fp32: stopped after step" in said
    filters = ["--filter", f"name=trainparity-run-{running.pid}"]
    assert subprocess.check_output(["docker", "ps", "--all", "--quiet", *filters], text=True) == ""


def test_rebuilding_leaves_no_image_without_a_name(project: Project) -> None:
    def nameless() -> set[str]:
        listed = ["docker", "image", "ls", "--quiet", "--no-trunc", "--filter", "dangling=true"]
        return set(subprocess.check_output(listed, text=True).split())

    def image() -> str:
        return subprocess.check_output(["docker", "image", "ls", "--quiet", "trainparity:cpu"], text=True)

    before, at_first = nameless(), image()
    project.write("src/trainparity/_added.py", f"TESTED = {os.getpid()}\n")
    for _ in range(2):
        subprocess.run(["docker/build", "cpu"], cwd=project.folder, check=True, capture_output=True)
    assert image() != at_first
    assert nameless() <= before
    (project.folder / "src/trainparity/_added.py").unlink()
    subprocess.run(["docker/build", "cpu"], cwd=project.folder, check=True, capture_output=True)


def test_a_build_is_done_though_another_one_tidies_up(project: Project, tmp_path: Path) -> None:
    docker = tmp_path / "docker"  # at such a moment
    busy = 'if [ "$1 $2" = "image prune" ]; then echo "a prune operation is already running" >&2; exit 1; fi\n'
    docker.write_text(f'#!/bin/sh\n{busy}exec {shutil.which("docker")} "$@"\n')
    docker.chmod(0o755)
    known = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["docker/build", "cpu"]
    done = subprocess.run(command, cwd=project.folder, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "is left to the next build" in done.stderr, done.stderr
    subprocess.run(command, cwd=project.folder, check=True, capture_output=True)  # which tidies up
