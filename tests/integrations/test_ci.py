"""The GitHub Action's script, run as a runner would, on two revisions of a small training."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import warm
from tests.support.scripts import PLAIN, write

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
[STEP] = ACTION["runs"]["steps"]


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
def test_the_action_fails_on_another_training_and_writes_the_summary(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    write(tmp_path, PLAIN.replace("default=1e-2", "default=2e-2"))
    git(tmp_path, "commit", "-qam", "change")
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    inputs = {
        "COMMAND": f"{warm.python()} train.py", "BASE": "HEAD~1", "WORKLOAD": "", "AGAINST": "",
        "OPTIONS": "--steps 3 --twins 1", "GITHUB_STEP_SUMMARY": str(summary),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    # As GitHub runs `shell: bash`.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | inputs, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    text = summary.read_text()
    assert text.startswith("before\n| runs | verdict |") and "| different |" in text and "learning-rate" in text


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"WORKLOAD": "workload:Mine"}, "input against: empty"),
        ({"COMMAND": "python train.py"}, "input base: empty"),
        ({}, "input command: empty"),
    ],
)
def test_an_input_that_is_missing_is_named(tmp_path: Path, inputs: dict[str, str], message: str) -> None:
    empty = dict.fromkeys(STEP["env"], "") | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]]
    done = subprocess.run(command, env=os.environ | empty | inputs, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_every_input_reaches_the_script_as_a_variable_and_none_as_code() -> None:
    assert "${{" not in STEP["run"]
    assert {value.split(".")[1].split()[0] for value in STEP["env"].values()} == set(ACTION["inputs"])
    assert all(f"${name}" in STEP["run"] for name in STEP["env"])


@pytest.mark.parametrize("name", ["ab", "check"])
def test_the_options_that_both_templates_use_are_there(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainparity.cli", name, "--help"], capture_output=True, text=True, check=True,
        env=os.environ | {"COLUMNS": "160"},
    )  # fmt: skip
    used = {"ab": ("--base", "--test", "--json", "--markdown"), "check": ("--against", "--markdown")}[name]
    scripts = STEP["run"] + " ".join(
        yaml.safe_load((ROOT / "deploy/gitlab-ci.yml").read_text())[".trainparity"]["script"]
    )
    assert all(option in done.stdout and option in scripts for option in used)
