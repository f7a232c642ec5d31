"""What the tests with a real engine share."""

import os

import pytest

from tests.docker.project import STRANGER, Project
from trainparity.launch.containers import look


@pytest.fixture(scope="module")
def images() -> None:
    """Skip without current images: to build them takes minutes."""
    if problem := look().missing:
        pytest.skip(f"docker: {problem}")


@pytest.fixture(scope="module")
def project(images: None, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project that an ordinary user owns."""
    return Project(tmp_path_factory.mktemp("docker") / "project", uid=os.getuid() or STRANGER)


@pytest.fixture(scope="module")
def own_project(images: None, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the project that the caller owns."""
    return Project(tmp_path_factory.mktemp("docker") / "project", uid=os.getuid())
