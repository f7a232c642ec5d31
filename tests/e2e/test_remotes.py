"""Results travel between machines through a folder that both see: two clones, each with a cache of its own."""

import csv
import io
from pathlib import Path

import pytest

from tests.support.project import Project, commit_small

pytestmark = pytest.mark.slow

READS = """
import json
from pathlib import Path

from tests.support.mlp import Mlp


class Mine(Mlp):
    def loss(self, model, batch):
        return json.loads(Path("factor.json").read_text()) * super().loss(model, batch)
"""
"""A workload that reads a file: which one, the other machine knows before it has any result."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A machine that has run an experiment and pushed what came of it."""
    folder = tmp_path_factory.mktemp("machines")
    project = commit_small(folder / "here")
    (project.folder / "factor.json").write_text("1.0")
    (project.folder / "mine.py").write_text(READS)
    project.edit("workload", value={"name": "mine:Mine"})
    project.edit("parallel", value="gradaccum")
    project.run("git", "add", "mine.py", "factor.json")
    project.run("dvc", "remote", "add", "-d", "shared", str(folder / "results"))
    project.run("git", "commit", "-qam", "results are shared")
    project.run("dvc", "exp", "run", "-n", "accumulated", "experiment")
    project.run("dvc", "push", "--run-cache")
    return project


@pytest.mark.slow
def test_a_machine_of_the_same_kind_trains_nothing(here: Project, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    assert there.stages("dvc", "repro", "--pull", "experiment") == {"probe"}
    assert there.outputs() == here.outputs()


@pytest.mark.slow
def test_a_machine_with_another_file_that_is_read_trains_for_itself(here: Project, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    (there.folder / "factor.json").write_text("2.0")
    assert there.stages("dvc", "repro", "--pull", "reference") == {"probe", "reference"}


@pytest.mark.slow
def test_a_machine_of_another_kind_trains_for_itself(here: Project, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    ran = there.stages("dvc", "repro", "--pull", "reference", CXX="no-compiler")
    assert ran == {"probe", "reference"}


def test_an_experiment_is_in_another_machines_table(here: Project, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    there.run("git", "init", "--quiet", "--bare", str(tmp_path / "both"))
    for project in (here, there):
        project.run("git", "remote", "add", "both", str(tmp_path / "both"))
    here.run("dvc", "exp", "push", "both", "accumulated")
    there.run("dvc", "exp", "pull", "both", "accumulated")
    rows = csv.DictReader(io.StringIO(there.run("dvc", "exp", "show", "--csv")))
    [row] = [row for row in rows if row["Experiment"] == "accumulated"]
    assert row["configuration"] == "gradaccum" and float(row["step_ms"]) > 0


def test_without_the_folder_it_runs_by_itself_and_only_a_push_fails(here: Project, tmp_path: Path) -> None:
    there = here.clone(tmp_path / "there")
    there.run("dvc", "remote", "modify", "shared", "url", "/dev/null/results")
    assert there.stages("dvc", "repro", "--pull", "prepare") == {"validate", "probe", "prepare"}
    with pytest.raises(AssertionError, match="Not a directory: '/dev/null/results"):
        there.run("dvc", "push", "--run-cache")
