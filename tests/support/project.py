"""A copy of this project with a small workload, for tests that run its pipeline."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.support import warm

ROOT = Path(__file__).parents[2]
DVC = ("dvc.cli.parser", "dvc.repo", "dvc.stage.run", "dvc.api", "dvc_render", "scipy.stats", "torchvision")
"""What its commands import beside what trainings do."""


class Project:
    """A small copy that is a Git repository of its own, and what its commands print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def clone(self, folder: Path) -> "Project":
        """Clone what is committed, as on another machine."""
        self.run("git", "clone", "--quiet", str(self.folder), str(folder))
        return Project(folder)

    def run(self, *command: str, **variables: str) -> str:
        """Run a command, Python from a warm one; return its output, or fail with it."""
        environment = in_copy(self.folder) | variables
        if command[0] == "dvc":
            command = ("python", "-m", *command)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-6000:]}"
        return done.stdout

    def stages(self, *command: str, **variables: str) -> set[str]:
        """Run a command; return the stages that really ran."""
        return set(re.findall(r"Running stage '([^']+)'", self.run(*command, **variables)))

    def edit(self, *keys: str, value: object) -> None:
        """Set a value of params.yaml."""
        edit(self.folder, *keys, value=value)

    def states(self) -> dict[str, str]:
        """Return DVC's hash of every run's state."""
        lock = yaml.safe_load((self.folder / "dvc.lock").read_text())
        outs = [out for stage in lock["stages"].values() for out in stage.get("outs", [])]
        return {out["path"]: out["md5"] for out in outs if out["path"].startswith("runs/state/")}

    def outputs(self) -> dict[str, bytes]:
        """Return every file that stages made under `data` and `runs`."""
        files = [path for name in ("data", "runs") for path in (self.folder / name).rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}

    def json(self, path: str) -> dict[str, object]:
        content: dict[str, object] = json.loads((self.folder / path).read_text())
        return content


def in_copy(folder: Path) -> dict[str, str]:
    """Return the variables of a command in a copy: its sources are imported, and `python` is a warm one."""
    folders = (Path(warm.python(*DVC, ours=False)).parent, Path(sys.executable).parent, os.environ["PATH"])
    path = os.pathsep.join(map(str, folders))
    return {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "160", "PATH": path}


def commit_small(folder: Path) -> Project:
    """Copy the working tree, make its training small, pin it to the CPU, and commit all that to a new repository."""
    copy_small(folder)
    project = Project(folder)
    project.edit("accelerator", value="cpu")
    project.run("git", "init", "-q")
    project.run("git", "config", "user.email", "tester@example.com")
    project.run("git", "config", "user.name", "Tester")
    project.run("git", "add", ".")
    project.run("git", "commit", "-qm", "small")
    return project


def copy_small(folder: Path) -> None:
    """Copy the working tree, uncommitted changes too, and make its training small."""
    folder.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if name != "dvc.lock" and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    edit(folder, "workload", value={"name": "tests.support.mlp:Mlp"})
    edit(folder, "train", "max_steps", value=6)
    edit(folder, "parity", value={"twins": 1, "window": 3, "sketch_size": 64, "margin": 16})
    edit(folder, "timing", value={"warmup_steps": 1, "steps": 3})


def edit(folder: Path, *keys: str, value: object) -> None:
    """Set a value of the copy's params.yaml."""
    path = folder / "params.yaml"
    content = section = yaml.safe_load(path.read_text())
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    path.write_text(yaml.safe_dump(content, sort_keys=False))
