"""deploy/slurm.sh on a cluster that Slurm's own daemons make of two containers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker_project import Project

pytestmark = pytest.mark.docker

CLUSTER = Path(__file__).parent / "slurm" / "compose.yaml"
STEPS = 200
CHECKPOINT = ".trainparity/work/runs/ddp/checkpoints/run/state.json"


class Cluster:
    def __init__(self, project: Project) -> None:
        self.project = project

    def compose(self, *arguments: str) -> str:
        done = self.project.compose("--file", str(CLUSTER), *arguments, PROJECT=str(self.project.folder))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def run(self, *command: str) -> str:
        """Run a command on the first node as the project's owner."""
        uid = self.project.uid
        return self.compose("exec", "--no-TTY", "--user", f"{uid}:{uid}", "node-0", *command)

    def submit(self, *command: str) -> str:
        """Submit a job; return its number."""
        return self.run("sbatch", "--parsable", "deploy/slurm.sh", *command)

    def wait(self, job: str, seconds: float = 200) -> dict[str, str]:
        """Wait for a job's end; return what Slurm knows of it."""
        deadline = time.monotonic() + seconds
        while True:
            words = self.run("scontrol", "show", "job", "--oneliner", job).split()
            found = dict(word.split("=", 1) for word in words if "=" in word)
            if found["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return found
            assert time.monotonic() < deadline, self.log(job)
            time.sleep(1)

    def log(self, job: str) -> str:
        """Return what a job has said so far."""
        path = self.project.folder / f"trainparity-{job}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def cluster(project: Project) -> Iterator[Cluster]:
    """Two nodes, and a run that is long enough to be stopped."""
    project.edit("train", "epochs", value=STEPS)
    project.edit("train", "max_steps", value=STEPS)
    project.edit("parity", "window", value=STEPS)
    cluster = Cluster(project)
    try:
        cluster.compose("up", "--build", "--detach", "--wait")
        yield cluster
    finally:
        cluster.compose("down", "--volumes", "--rmi", "all")  # its label names this run


def test_the_commands_exit_code_is_the_jobs(cluster: Cluster) -> None:
    job = cluster.submit("trainparity", "train", "dpp")
    ended = cluster.wait(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "2:0"), cluster.log(job)
    assert "did you mean" in cluster.log(job)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "stop",
    [
        ("scancel", "--batch", "--signal=TERM"),  # what --signal=B:TERM@120 does before the time limit
        ("scancel",),  # what cancels a job, and ends it at the limit
    ],
    ids=["warned", "cancelled"],
)
def test_a_stopped_job_writes_a_checkpoint(cluster: Cluster, stop: tuple[str, ...]) -> None:
    checkpoint = cluster.project.folder / CHECKPOINT
    checkpoint.unlink(missing_ok=True)  # so that it starts anew
    job = cluster.submit("trainparity", "train", "ddp")
    cluster.project.wait_for(checkpoint, 400)  # one of those that are written every so often
    cluster.run(*stop, job)
    ended, log = cluster.wait(job), cluster.log(job)
    assert ended["JobState"] in ("FAILED", "CANCELLED")
    assert "ddp: stopped after step" in log


def test_two_nodes_train_one_run_and_the_job_ends_with_it(cluster: Cluster) -> None:
    assert (cluster.project.folder / CHECKPOINT).exists()  # it goes on from there
    job = cluster.submit("trainparity", "train", "ddp")
    ended, log = cluster.wait(job), cluster.log(job)
    assert (ended["JobState"], ended["ExitCode"], ended["NumNodes"]) == ("COMPLETED", "0:0", "2"), log
    assert log.count("joining ddp") == 1 and "error" not in log and "Traceback" not in log
    assert json.loads((cluster.project.folder / "runs/environment.json").read_text())["nodes"] == 2
    status = cluster.project.status("ddp")
    assert (status["status"], status["steps"]) == ("trained", STEPS)
    assert "trainparity" not in cluster.compose("top", "node-1").partition("CMD")[2]
