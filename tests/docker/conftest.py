"""What the tests with a real engine share."""

import os
from collections.abc import Iterator

import pytest

from tests.support.docker_project import STRANGER, Project
from trainparity.launch.containers import look


@pytest.fixture(scope="module")
def images() -> None:
    """Skip without current images: to build them takes minutes."""
    if problem := look().missing:
        pytest.skip(f"docker: {problem}")


@pytest.fixture(scope="module")
def project(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A copy of the project that an ordinary user owns."""
    project = Project(tmp_path_factory.mktemp("docker") / "project", uid=os.getuid() or STRANGER)
    yield project
    project.compose("--profile", "multinode", "down", "--volumes")


@pytest.fixture(scope="module")
def own_project(images: None, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project that the caller owns."""
    return Project(tmp_path_factory.mktemp("docker") / "project", uid=os.getuid())
