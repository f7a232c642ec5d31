"""Files that no import shows: edited, they make run again what has read them; as they were, nothing runs."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.test_what_reruns import would_run
from tests.support.project import Project, commit_small

FILES = {
    "mine.py": """
import importlib
import json
import sys
from pathlib import Path

from tests.support.mlp import Mlp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "elsewhere"))


class Mine(Mlp):
    def loss(self, model, batch):
        part = importlib.import_module(".".join(["parts", "factor"]))  # as late as in the first step
        [factor, *_] = [json.loads(path.read_text()) for path in sorted((HERE / "settings").glob("*.json"))]
        return part.FACTOR * factor * importlib.import_module("helper").FACTOR * super().loss(model, batch)
""",
    "parts/factor.py": "FACTOR = 1.0\n",
    "elsewhere/helper.py": "FACTOR = 1.0\n",
    "settings/loss.json": "1.0\n",
}
READ = [name for name in FILES if name != "mine.py"]
TRAINING = {"reference", "train@halves"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = commit_small(tmp_path_factory.mktemp("read") / "project")
    for name, text in FILES.items():
        write(project.folder / name, text)
    project.edit("workload", value={"name": "mine:Mine"})
    project.edit("configs", value={"halves": {"accumulation_steps": 2}})
    project.edit("pairs", value={})
    project.edit("parallel", value="halves")
    project.run("dvc", "repro")
    return project


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.slow
def test_what_was_read_makes_nothing_run_again(project: Project) -> None:
    assert would_run(project) == set()


@pytest.mark.slow
def test_an_edited_file_that_was_read_makes_all_run_that_has_read_it(project: Project) -> None:
    for name in READ:
        (project.folder / name).write_text(FILES[name].replace("1.0", "2.0"))
    try:
        said = project.run("python", "-m", "trainparity.cli", "status")
        assert all(f"{name} was edited: reference, train@halves" in said for name in READ)
        assert would_run(project) >= TRAINING
    finally:
        for name in READ:
            (project.folder / name).write_text(FILES[name])
    assert would_run(project) == set()


def test_a_file_that_is_gone_is_another_one(project: Project) -> None:
    path = project.folder / "settings/loss.json"
    path.unlink()
    assert would_run(project) >= TRAINING
    path.write_text(FILES["settings/loss.json"])
    assert would_run(project) == set()


def test_a_file_that_comes_into_a_folder_that_was_listed_makes_it_another_one(project: Project) -> None:
    path = project.folder / "settings/another.json"
    path.write_text("2.0")
    assert would_run(project) >= TRAINING
    path.unlink()
    assert would_run(project) == set()


@pytest.mark.slow
def test_each_content_has_its_results(project: Project) -> None:
    path, losses = project.folder / "settings/loss.json", project.folder / "runs/state/halves/loss.csv"
    before = losses.read_text()
    path.write_text("2.0\n")
    assert project.stages("dvc", "repro") >= TRAINING
    assert losses.read_text() != before
    assert would_run(project) == set()
    path.write_text(FILES["settings/loss.json"])
    project.run("dvc", "repro")
    assert losses.read_text() == before
    assert would_run(project) == set()


@pytest.mark.slow
def test_dvc_replaces_a_plan_without_asking(project: Project) -> None:
    """The plans that stages have completed are none that `probe` wrote."""
    project.run("dvc", "repro", "--force", "--single-item", "train@halves")
    project.run("dvc", "checkout")
    assert not would_run(project) & TRAINING


@pytest.mark.slow
def test_without_anything_but_dvcs_cache_each_content_has_its_own_results(project: Project) -> None:
    path, losses = project.folder / "settings/loss.json", project.folder / "runs/state/halves/loss.csv"
    before = losses.read_text()
    for made in (".trainparity", "runs", "reports", "data"):
        shutil.rmtree(project.folder / made)
    path.write_text("5.0\n")
    project.run("dvc", "repro")
    assert losses.read_text() != before
    path.write_text(FILES["settings/loss.json"])
    for made in (".trainparity", "runs", "reports", "data"):
        shutil.rmtree(project.folder / made)
    assert not project.stages("dvc", "repro") & TRAINING
    assert losses.read_text() == before


def test_without_the_notes_of_what_was_read_no_edit_goes_unseen(project: Project) -> None:
    path = project.folder / "settings/loss.json"
    shutil.rmtree(project.folder / ".dvc/cache/runs/trainparity")
    path.write_text("3.0\n")
    assert would_run(project) >= TRAINING
    path.write_text(FILES["settings/loss.json"])


@pytest.mark.study
def test_a_temporary_experiment_has_read_the_same(project: Project) -> None:
    path = project.folder / "settings/loss.json"
    project.run("dvc", "repro")
    project.run("git", "add", ".")
    project.run("git", "commit", "--quiet", "-m", "with a file that is read")
    assert not project.stages("dvc", "exp", "run", "--temp", "experiment") & TRAINING
    path.write_text("4.0\n")
    assert project.stages("dvc", "exp", "run", "--temp", "experiment") >= TRAINING
    assert not project.stages("dvc", "exp", "run", "--temp", "experiment") & TRAINING
    path.write_text(FILES["settings/loss.json"])
