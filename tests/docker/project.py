"""A small copy of the project that belongs to an ordinary user, and Docker commands on it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
STRANGER = 1234
"""Whom the copy belongs to where root runs the tests."""


class Project:
    def __init__(self, folder: Path, uid: int) -> None:
        self.folder, self.uid = folder, uid
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if name != "dvc.lock" and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self.edit("workload", value={"name": "tests.mlp:Mlp"})
        self.edit("train", "max_steps", value=6)
        self.edit("parity", value={"twins": 1, "window": 3, "sketch_size": 64, "margin": 16})
        self.edit("timing", value={"warmup_steps": 1, "steps": 3})
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, self.uid, self.uid)

    def edit(self, *keys: str, value: object) -> None:
        """Set a value of params.yaml."""
        path = self.folder / "params.yaml"
        content = section = yaml.safe_load(path.read_text())
        for key in keys[:-1]:
            section = section[key]
        section[keys[-1]] = value
        path.write_text(yaml.safe_dump(content, sort_keys=False))

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
        found: dict[str, Any] = json.loads((self.folder / "runs" / name / "state" / "status.json").read_text())
        return found

    def wait_for(self, path: Path, seconds: float = 120) -> None:
        """Wait until a file is there."""
        deadline = time.monotonic() + seconds
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not appear"
            time.sleep(0.1)

    def environment(self) -> dict[str, str]:
        """Return what its commands find in the environment."""
        first = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": first,
            "PYTHONPATH": str(self.folder / "src"),
            "UID": str(self.uid),
            "GID": str(self.uid),
        }
