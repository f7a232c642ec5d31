"""The built wheel in an environment of its own and an empty folder: nothing of this repository is within reach."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support.scripts import PLAIN, write

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, and sees the other packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    build(folder, "wheel")
    venv.create(folder / "env", with_pip=False)
    packages = folder / "env" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    # Listed after its own: the trainparity of this environment, which leads to the sources, is never reached.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "env/bin/python"


def build(folder: Path, kind: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{python.parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [python, "-m", "trainparity.cli", *arguments], cwd=folder, env=environment | {"PATH": path, "COLUMNS": "160"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_two_commands_are_compared_in_a_folder_with_one_script(python: Path, tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    done = run(python, tmp_path, "ab", "--steps", "4", "--json", "answer.json", "python train.py", "python train.py")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "answer.json").read_text())["verdict"] == "bitwise"


@pytest.mark.slow
def test_a_project_of_ones_own_begins_and_runs(python: Path, tmp_path: Path) -> None:
    done = run(python, tmp_path, "init")
    assert done.returncode == 0, done.stderr
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())
    params |= {"configs": {"gradaccum": params["configs"]["gradaccum"]}, "parallel": "gradaccum"}
    params["train"]["max_steps"] = params["parity"]["window"] = 4
    params["parity"]["twins"] = 1
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    done = run(python, tmp_path, "repro")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gradaccum: equivalent" in done.stdout
    plan = json.loads((tmp_path / "runs/plan/train/gradaccum.json").read_text())
    assert list(plan["files"]) == ["workload.py"] and "trainparity" in plan["distributions"]


def test_studies_say_that_they_need_a_clone(python: Path, tmp_path: Path) -> None:
    done = run(python, tmp_path, "studies")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "studies: no such folder here: run this in a clone of trainparity, which has the studies\n"


def test_the_source_distribution_builds_the_same_package(tmp_path: Path) -> None:
    build(tmp_path, "sdist")
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "README.md", "src/trainparity/starter/dvc.yaml"} <= names
    assert not any(name.startswith((".venv", "runs/", "data/", ".dvc/cache")) for name in names)
