"""Results travel between machines through S3, with a real server of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.s3.server import Server, serving
from tests.support.project import Project, commit_small

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        server.filesystem().mkdir("bucket")
        yield server


@pytest.fixture(scope="module")
def here(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A machine that has trained and pushed what came of it."""
    project = commit_small(tmp_path_factory.mktemp("machines") / "here")
    project.run("dvc", "remote", "add", "-d", "shared", "s3://bucket/trainparity")
    project.run("dvc", "remote", "modify", "shared", "endpointurl", server.url)
    project.run("git", "commit", "-qam", "results are shared")
    sign(project, server.access_key, server.secret_key)
    project.run("dvc", "repro", "train@gradaccum")
    project.run("dvc", "push", "--run-cache")
    return project


def sign(project: Project, access_key: str, secret_key: str) -> None:
    """Give a clone the credentials that its commands sign with."""
    for name, value in (("access_key_id", access_key), ("secret_access_key", secret_key)):
        project.run("dvc", "remote", "modify", "--local", "shared", name, value)


def test_a_machine_of_the_same_kind_trains_nothing(here: Project, server: Server, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    sign(there, server.access_key, server.secret_key)
    assert there.stages("dvc", "repro", "--pull", "train@gradaccum") == {"probe"}
    assert there.outputs() == here.outputs()
    assert there.run("git", "status", "--short").split() == ["??", "dvc.lock"]  # credentials are no part of it


def test_wrong_credentials_are_said_and_right_ones_go_on(here: Project, server: Server, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    sign(there, server.access_key, "wrong")
    before = server.filesystem().find("bucket")
    with pytest.raises(AssertionError, match="Forbidden"):
        there.run("dvc", "repro", "--pull", "train@gradaccum")
    there.edit("dataset", "limit", value=100)
    assert there.stages("dvc", "repro", "prepare") == {"validate", "probe", "prepare"}
    with pytest.raises(AssertionError, match="Forbidden"):
        there.run("dvc", "push", "--run-cache")
    assert server.filesystem().find("bucket") == before
    there.run("git", "checkout", "-q", "params.yaml")
    sign(there, server.access_key, server.secret_key)
    assert there.stages("dvc", "repro", "--pull", "train@gradaccum") == {"probe"}


def test_a_stopped_server_is_said_and_the_rest_works_without_it(here: Project, server: Server, tmp_path: Path) -> None:
    server.container.kill()
    there = here.clone(tmp_path / "there")
    sign(there, server.access_key, server.secret_key)
    with pytest.raises(AssertionError, match="Could not connect to the endpoint URL"):
        there.run("dvc", "repro", "--pull", "train@gradaccum")
    assert there.stages("dvc", "repro", "prepare") == {"validate", "probe", "prepare"}
    with pytest.raises(AssertionError, match="Could not connect to the endpoint URL"):
        there.run("dvc", "push", "--run-cache")
