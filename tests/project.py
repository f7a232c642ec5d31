"""A copy of this project with a small workload, for tests that run its pipeline."""

import shutil
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


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
    edit(folder, "workload", value={"name": "tests.mlp:Mlp"})
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
