"""What a project to join has: its files are whole, and say what is true."""

import json
import re
from pathlib import Path

import pytest
import yaml

import trainparity

ROOT = Path(__file__).parents[2]
YAML = [
    ROOT / "action.yml", ROOT / "deploy/gitlab-ci.yml", ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff",
    *sorted((ROOT / ".github").rglob("*.yml")),
]  # fmt: skip


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_every_yaml_file_is_whole(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["ci", "images", "release"])
def test_workflows_call_targets_that_exist_and_may_do_no_more_than_they_need(name: str) -> None:
    workflow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    called = {target for run in steps for target in re.findall(r"make ([\w-]+)", run)}
    assert called and called <= targets
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("secrets." in run for run in steps)


def test_the_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == trainparity.__version__ and citation["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
