"""A small copy of the project that belongs to an ordinary user, and Docker commands on it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.project import copy_small, edit
from trainparity.records import layout

STRANGER = 1234
"""Whom the copy belongs to where root runs the tests."""


class Project:
    def __init__(self, folder: Path, uid: int) -> None:
        self.folder, self.uid = folder, uid
        self.name = f"trainparity-test-{os.getpid()}-{uid}"  # of its containers and volumes
        copy_small(folder)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, self.uid, self.uid)

    def edit(self, *keys: str, value: object) -> None:
        """Set a value of params.yaml."""
        edit(self.folder, *keys, value=value)

    def write(self, name: str, content: str) -> Path:
        """Write a file that belongs to the project's user, as its folder does."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        for part in (path, path.parent):
            os.chown(part, self.uid, self.uid)
        return path

    def compose(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run docker compose to its end."""
        command = ["docker", "compose", *arguments]
        chosen = self.environment() | environment
        return subprocess.run(command, cwd=self.folder, env=chosen, capture_output=True, text=True, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start docker compose."""
        return subprocess.Popen(["docker", "compose", *arguments], cwd=self.folder, env=self.environment())

    def docker(self, image: str, *command: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run a command in an image, on the project."""
        mount = ["--volume", f"{self.folder}:/workspace", "--user", f"{self.uid}:{self.uid}", *options]
        whole = ["docker", "run", "--rm", "--network", "none", *mount, image, *command]
        return subprocess.run(whole, capture_output=True, text=True, check=False)

    def dvc(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run DVC on the host."""
        return subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=self.folder, env=self.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip

    def status(self, name: str) -> dict[str, Any]:
        """Return what a run recorded of itself."""
        found: dict[str, Any] = json.loads(layout.status(self.folder / "runs", name).read_text())
        return found

    def wait_for(self, path: Path, seconds: float = 120) -> None:
        """Wait until a file is there."""
        deadline = time.monotonic() + seconds
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.1)

    def environment(self) -> dict[str, str]:
        """Return what its commands find in the environment."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "src"),
            "UID": str(self.uid),
            "GID": str(self.uid),
            "COMPOSE_PROJECT_NAME": self.name,
            "CPU_IMAGE": "trainparity:cpu",
            "CUDA_IMAGE": "trainparity:cuda",
        }
