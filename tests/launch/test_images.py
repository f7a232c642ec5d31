"""When an image is stale; tests/docker builds and uses them."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainparity import __version__
from trainparity.errors import UserError
from trainparity.launch import images

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the images are made from, as the working directory, with no setting in the environment."""
    for name in ("docker", "src/trainparity/__init__.py", "compose.yaml", "pyproject.toml"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for name in ("TORCH_INDEX", "BASE_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_the_lock_and_what_is_built_with_it_make_an_image_stale(clone: Path) -> None:
    seen = {images.inputs("cpu")}
    for name in ("environment/requirements.lock", "environment/install", "Dockerfile", "entrypoint", "finish"):
        append(clone / "docker" / name, "# changed\n")
        seen.add(images.inputs("cpu"))
    assert len(seen) == 6


def test_what_the_packages_do_not_depend_on_makes_no_image_stale(clone: Path) -> None:
    before = images.inputs("cpu")
    append(clone / "pyproject.toml", "\n[tool.ruff.format]\n")
    append(clone / "src/trainparity/__init__.py", "\n# a comment\n")
    append(clone / "docker/run", "# a comment\n")
    assert images.inputs("cpu") == before


def test_a_default_said_aloud_changes_nothing(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = images.inputs("cpu"), images.inputs("cuda")
    monkeypatch.setenv("TORCH_INDEX", "cpu")
    monkeypatch.setenv("BASE_IMAGE", "python:3.11-slim-bookworm")
    assert (images.inputs("cpu"), images.inputs("cuda")) == (cpu, cuda)
    monkeypatch.setenv("TORCH_INDEX", "registry")
    assert images.inputs("cpu") != cpu and images.inputs("cuda") == cuda  # CUDA's torch is always the registry's
    monkeypatch.setenv("BASE_IMAGE", "python:3.12-slim-bookworm")
    assert images.inputs("cuda") != cuda


def labels(kind: str) -> dict[str, str]:
    said = subprocess.run(["docker/labels", kind], capture_output=True, text=True, check=True).stdout
    return dict(line.split("=", 1) for line in said.splitlines())


def test_the_labels_say_where_an_image_comes_from(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard = "org.opencontainers.image."
    assert labels("cpu")[f"{standard}revision"] == "unknown"  # no git repository
    monkeypatch.setenv("BASE_IMAGE", "python:3.11@sha256:abc")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        author = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com"]
        subprocess.run(["git", *author, *command], check=True)
    said = labels("cuda")
    assert len(said[f"{standard}revision"]) == 40 and said[f"{standard}created"].startswith("20")
    assert (said[f"{standard}base.name"], said[f"{standard}base.digest"]) == ("python:3.11", "sha256:abc")
    assert said[f"{standard}source"].startswith("https://") and said[f"{standard}version"]
    append(clone / "pyproject.toml", "\n")
    assert labels("cuda")[f"{standard}revision"] == said[f"{standard}revision"] + "-dirty"


def test_without_a_whole_clone_or_nvidias_runtime_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no clone of trainparity is in"):
        images.inputs("cpu")
    (tmp_path / "docker").mkdir()
    for name in ("compose.yaml", "docker/labels"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match="docker/labels can't be run"):
        images.inputs("cpu")
    client: Any = SimpleNamespace(info=lambda: {"Runtimes": {"runc": {}}})
    with pytest.raises(UserError, match="no NVIDIA runtime: install"):
        images.ensure(client, "cuda")


def test_a_project_of_ones_own_uses_the_published_image_or_what_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "study").mkdir()
    monkeypatch.chdir(tmp_path / "study")
    monkeypatch.delenv("CPU_IMAGE", raising=False)
    assert images.project() == tmp_path
    assert images.name("cpu") == f"ghcr.io/trainparity/trainparity:{__version__}-cpu"
    monkeypatch.setenv("CPU_IMAGE", "registry.example.com/training:7")
    assert images.name("cpu") == "registry.example.com/training:7"
