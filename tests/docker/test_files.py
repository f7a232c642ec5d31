"""docker/ and compose.yaml against what they repeat; no engine is needed."""

import json
import re
import tomllib
from pathlib import Path

import yaml

from tests.test_packages import names
from trainparity import __version__

ROOT = Path(__file__).parents[2]
LOCKS = [(ROOT / name).read_text() for name in ("requirements.lock", "docker/environment/requirements.lock")]


def test_the_images_hold_what_the_project_needs_at_the_locks_versions() -> None:
    whole, held = (set(re.findall(r"^\S+==\S+", lock, re.MULTILINE)) for lock in LOCKS)
    assert held < whole
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = names([*project["dependencies"], *extras["pipeline"], *extras["report"], *extras["data"]])
    assert needed <= {package.partition("==")[0] for package in held}


def test_every_service_is_locked_down_and_only_prepare_has_a_network() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True, name
        assert service["mem_limit"] and service["pids_limit"], name
        kind = name.removeprefix("train-") if name == "train-cuda" else "cpu"
        published = f"ghcr.io/trainparity/trainparity:{__version__}-{kind}"
        assert service["image"] == f"${{{kind.upper()}_IMAGE:-{published}}}", name
        if service.get("profiles") == ["multinode"]:
            assert service["networks"] == ["nodes"], name
        else:
            assert service["network_mode"] == ("bridge" if name == "prepare" else "none"), name


def test_whatever_names_a_published_image_names_this_versions() -> None:
    files = ["README.md", "compose.yaml", "deploy/kubernetes.yaml", *(ROOT / "docs").glob("*.md")]
    named = [re.findall(r"ghcr\.io/trainparity/trainparity:([^-]+)-c", (ROOT / file).read_text()) for file in files]
    assert all(named[:3]) and {version for versions in named for version in versions} == {__version__}


def test_the_dev_container_is_an_image_of_the_dockerfile() -> None:
    described = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    file = (ROOT / ".devcontainer" / described["build"]["dockerfile"]).resolve()
    assert (ROOT / ".devcontainer" / described["build"]["context"]).resolve() == ROOT
    dockerfile = file.read_text()
    assert f" AS {described['build']['target']}\n" in dockerfile
    assert f" {described['remoteUser']};" in dockerfile and f"WORKDIR {described['workspaceFolder']}\n" in dockerfile
