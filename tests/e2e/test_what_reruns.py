"""What edited files and settings make run again: DVC's own answer, on a pipeline that has run."""

import json

import pytest
from dvc.repo import Repo

from tests.support.project import Project, commit_small

CONFIGS = {
    "cpu": {"device": "cpu"},
    "ddp": {"strategy": "ddp", "world_size": 2},
    "sharded": {"strategy": "fsdp", "world_size": 2},
}
TRAIN = {f"train@{name}" for name in CONFIGS}
TRAINING = {"reference", "counterpart", *TRAIN}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = commit_small(tmp_path_factory.mktemp("reruns") / "project")
    project.edit("configs", value=CONFIGS)
    project.edit("pairs", value={})
    project.run("dvc", "repro")
    return project


def would_run(project: Project) -> set[str]:
    """Return the stages whose deps have changed, as `dvc status` says after the probe."""
    project.run("python", "-m", "trainparity.stages", "probe")
    return set(json.loads(project.run("dvc", "status", "--json", "dvc.yaml"))) - {"probe"}


def files_of_plans(project: Project) -> dict[str, dict[str, str]]:
    """Return the hash of each file that a stage depends on, by stage."""
    plans = project.folder / "runs/plan"
    return {
        "@".join(path.relative_to(plans).with_suffix("").parts): json.loads(path.read_text())["files"]
        for path in plans.rglob("*.json")
    }


EDITS = {
    "tests/support/mlp.py": TRAINING,  # the user's own model
    "src/trainparity/workloads/new.py": set(),
    "src/trainparity/workloads/registry.py": set(),  # a new workload's entry
    "src/trainparity/workloads/ddpm.py": set(),  # another workload
    "src/trainparity/workloads/toy_linear.py": {"known-answer"},
    "src/trainparity/report/page.py": {"report"},
    "src/trainparity/report/templates/page.html.j2": {"report"},  # its folder is a package
    "src/trainparity/parity/verdict.py": {"compare", "experiment"},
    "src/trainparity/data/imagefolder.py": {"prepare", "known-answer"},
    "src/trainparity/training/loop.py": {*TRAINING, "known-answer"},
    "src/trainparity/strategies/fsdp.py": {"train@sharded"},
    "src/trainparity/stages/train.py": TRAIN,
    "README.md": set(),
}


@pytest.fixture(scope="module")
def edited(project: Project) -> tuple[dict[str, set[str]], set[str], str]:
    """Edit all files at once; return each file's stages by the plans, the stages by DVC, and what `status` says."""
    before = {name: path.read_bytes() if (path := project.folder / name).exists() else None for name in EDITS}
    old = files_of_plans(project)
    for name in EDITS:
        with (project.folder / name).open("a", encoding="utf-8") as file:
            file.write("\n# edited\n")
    try:
        run = would_run(project)
        said = project.run("python", "-m", "trainparity.cli", "status")
        new = files_of_plans(project)
        changed = {
            stage: {f for f, digest in files.items() if digest != old[stage].get(f)} for stage, files in new.items()
        }
    finally:
        for name, content in before.items():
            path = project.folder / name
            path.unlink() if content is None else path.write_bytes(content)
    by_file = {name: {s for s, files in changed.items() if name.removeprefix("src/") in files} for name in EDITS}
    return by_file, run, said


@pytest.mark.slow
@pytest.mark.parametrize("file", EDITS)
def test_an_edited_file_makes_its_stages_run(edited: tuple[dict[str, set[str]], set[str], str], file: str) -> None:
    by_file, _, said = edited
    assert by_file[file] == EDITS[file]
    assert (f"{file.removeprefix('src/')} was edited" in said) == bool(EDITS[file]), said


@pytest.mark.slow
def test_dvc_runs_the_stages_of_edited_files(edited: tuple[dict[str, set[str]], set[str], str]) -> None:
    assert edited[1] == set().union(*EDITS.values())


@pytest.mark.parametrize(
    ("file", "stages"),
    [
        ("tests/support/mlp.py", TRAINING),
        ("src/trainparity/report/page.py", {"report"}),
        ("studies/ddp-vs-accumulation/claims.yaml", {"known-answer"}),
    ],
)
def test_dvc_runs_nothing_else(project: Project, file: str, stages: set[str]) -> None:
    path = project.folder / file
    before = path.read_bytes()
    path.write_bytes(before + b"\n# edited\n")
    try:
        assert would_run(project) == stages
    finally:
        path.write_bytes(before)


def test_nothing_changed_means_nothing_runs(project: Project) -> None:
    assert would_run(project) == set()
    assert project.run("python", "-m", "trainparity.cli", "status") == "no change since the last run\n"


def test_dvc_reads_no_pipeline_but_this_one(project: Project) -> None:
    """Each further dvc.yaml is parsed by every command of DVC."""
    with Repo(project.folder) as repo:
        assert {stage.path for stage in repo.index.stages} == {str(project.folder / "dvc.yaml")}


@pytest.mark.slow
def test_a_new_configuration_is_one_line_and_nothing_else_trains(project: Project) -> None:
    params = project.folder / "params.yaml"
    before = params.read_text()
    try:
        project.edit("configs", "halves", value={"accumulation_steps": 2})
        before_it = project.states()
        ran = project.stages("dvc", "repro")
        # `reference` says which configuration needs which reference; it keeps what is there.
        assert ran == {"validate", "probe", "reference", "train@halves", "compare", "report"}
        assert before_it.items() <= project.states().items()
        pairs = project.json("reports/summary.json")["pairs"]
        assert isinstance(pairs, dict) and pairs["halves"]["verdict"] in ("bitwise", "equivalent")
        assert "halves" in (project.folder / "reports/index.html").read_text()
    finally:
        params.write_text(before)
    project.run("dvc", "repro")
    assert "halves" not in project.json("reports/summary.json")["pairs"]
    assert "halves" not in (project.folder / "reports/index.html").read_text()
    assert not (project.folder / "runs/state/halves").exists()


@pytest.mark.slow
def test_an_edited_model_trains_again_and_resumes_no_checkpoint_of_the_old_one(project: Project) -> None:
    model = project.folder / "tests/support/mlp.py"
    before, state = model.read_text(), project.folder / "runs/state/cpu/loss.csv"
    losses = state.read_text()
    try:
        model.write_text(before.replace("hidden: int = ", "hidden: int = 1 + "))
        said = project.run("dvc", "repro", "train@cpu")
        assert "tests/support/mlp.py was edited: " in said
        assert state.read_text() != losses
    finally:
        model.write_text(before)
    project.run("dvc", "repro", "train@cpu")
    assert state.read_text() == losses
