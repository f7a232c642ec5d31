"""The default pipeline itself, through DVC, in a clone: all configurations on a small workload."""

import csv
import io
import re
from collections.abc import Iterator

import pytest

from tests.support.browser import complaints
from tests.support.project import Project, commit_small
from trainparity.launch.containers import look
from trainparity.records.numbers import number
from trainparity.report.schema import Summary

TRAINED = {"cpu", "dp", "ddp", "gradaccum", "fsdp-offload", "compiled"}

PRETENDED_PROBE = """
from pathlib import Path
from trainparity import environment
from trainparity.stages import real_probe
detect = environment.detect

def pretended():
    gpu = environment.Accelerator(kind="mps", name="pretended GPU", memory_mib=1)
    return detect().model_copy(update={"accelerators": [gpu]})

def main():
    if Path("pretend").exists():
        environment.detect = pretended
    real_probe.main()
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Clone the working tree (uncommitted changes too), make it small, and run the pipeline once."""
    project = commit_small(tmp_path_factory.mktemp("clone") / "project")
    project.run("dvc", "repro")
    project.run("git", "add", "dvc.lock")
    project.run("git", "commit", "-qm", "run")
    project.run("git", "tag", "ran")
    return project


@pytest.fixture
def project(pipeline: Project) -> Iterator[Project]:
    """Give a test the pipeline as it was after its one run, whatever other tests did to it."""
    yield pipeline
    pipeline.run("git", "reset", "-q", "--hard", "ran")
    pipeline.run("git", "clean", "-qfd")
    pipeline.run("dvc", "checkout", "--force", "dvc.yaml")


def test_every_configuration_trains_and_is_judged(project: Project) -> None:
    summary = project.json("reports/summary.json")
    configurations, pairs = summary["configurations"], summary["pairs"]
    assert isinstance(configurations, dict) and isinstance(pairs, dict)
    statuses = {name: configuration["status"] for name, configuration in configurations.items()}
    can_train = {name for name, status in statuses.items() if status["status"] == "trained"}
    assert can_train >= TRAINED, {name: status["reason"] for name, status in statuses.items()}
    if look().missing is None:
        can_train.add("counterpart")
    for name, pair in pairs.items():
        runs = {pair["right"]} | ({pair["left"]} & set(configurations))
        expected = {"bitwise", "equivalent"} if runs <= can_train else {"skipped"}
        assert pair["verdict"] in expected, (name, pair)
    for name in set(configurations) - can_train:
        assert statuses[name]["reason"] and statuses[name]["remedy"]
    known = summary["known_answer"]
    assert isinstance(known, dict) and known["reproduced"] is True


def test_its_page_shows_the_summary_and_a_browser_finds_no_fault(project: Project) -> None:
    path = project.folder / "reports/index.html"
    text = path.read_text(encoding="utf-8")
    summary = Summary.read(project.folder / "reports/summary.json")
    table = text.partition("Verdict, time and memory of each configuration")[2].partition("</table>")[0]
    rows = {row.partition("<")[0]: row for row in table.split('<th scope="row">')[1:]}
    for name, run in summary.configurations.items():
        assert (run.status.status if run.verdict is None else run.verdict.verdict) in rows[name]
        assert not run.figures or f">{number(run.figures.step_ms.median)}<" in rows[name]
    assert complaints(path) == []
    assert complaints(path, width=390) == []


def test_a_second_repro_trains_nothing(project: Project) -> None:
    assert project.stages("dvc", "repro") == {"probe"}


def test_outputs_are_whole_and_nothing_else_is_left_in_the_tree(project: Project) -> None:
    for name in ("summary.json", "parity.csv", "timing.csv", "index.html", "plots/loss.csv"):
        assert (project.folder / "reports" / name).stat().st_size > 0
    assert project.run("git", "status", "--short") == ""


@pytest.mark.slow
def test_states_are_byte_identical_when_trained_again(project: Project) -> None:
    before = project.states()
    project.run("dvc", "repro", "-s", "-f", "train@ddp", "train@compiled")
    assert project.states() == before


@pytest.mark.slow
def test_an_experiment_trains_only_what_it_needs(project: Project) -> None:
    project.edit("configs", "gradaccum", "accumulation_steps", value=4)
    project.run("git", "commit", "-qam", "four micro-batches")
    ran = project.stages("dvc", "exp", "run", "-S", "parallel=gradaccum", "experiment")
    assert ran == {"validate", "probe", "train@gradaccum", "experiment"}
    metrics = project.json("metrics.json")
    assert (metrics["configuration"], metrics["status"], metrics["verdict"]) == ("gradaccum", "trained", "equivalent")


@pytest.mark.study
def test_a_queue_over_configurations_fills_the_table_of_experiments(project: Project) -> None:
    project.run("dvc", "exp", "run", "--queue", "-S", "parallel=cpu,ddp", "experiment")
    project.run("dvc", "exp", "run", "--run-all")
    rows = list(csv.DictReader(io.StringIO(project.run("dvc", "exp", "show", "--csv"))))
    queued = {row["configuration"]: row for row in rows if row["typ"] == "branch_base" or row["typ"] == "branch_commit"}
    assert {"cpu", "ddp"} <= set(queued)
    assert all(float(queued[name]["step_ms"]) > 0 for name in ("cpu", "ddp"))
    assert [queued[name]["verdict"] for name in ("cpu", "ddp")] == ["bitwise", "equivalent"]
    # Readable: a handful of figures, not every number of every report.
    shown = project.run("dvc", "exp", "show", "--only-changed", "--hide-workspace", "--drop", ".*/.*|.*yaml", "--csv")
    assert len(shown.splitlines()[0].split(",")) < 20


@pytest.mark.slow
def test_a_changed_configuration_retrains_it_alone(project: Project) -> None:
    project.edit("configs", "ddp", "accumulation_steps", value=2)
    assert project.stages("dvc", "repro") == {
        "validate",
        "probe",
        "train@ddp",
        "compare",
        "report",
        "experiment",
    }


@pytest.mark.slow
def test_a_new_accelerator_reruns_and_its_loss_restores(project: Project) -> None:
    probe = project.folder / "src/trainparity/stages/probe.py"
    probe.rename(probe.with_name("real_probe.py"))
    probe.write_text(PRETENDED_PROBE)
    project.run("dvc", "repro")
    summary, states = (project.folder / "reports/summary.json").read_bytes(), project.states()
    (project.folder / "pretend").touch()
    ran = project.stages("dvc", "repro", "train@cpu", "train@mps")
    assert {"reference", "train@cpu", "train@mps"} <= ran
    tried = project.json("runs/state/mps/status.json")["status"]
    assert tried in ("failed", "trained")  # this machine may really have one
    (project.folder / "pretend").unlink()
    assert project.stages("dvc", "repro") == {"probe"}
    assert (project.folder / "reports/summary.json").read_bytes() == summary
    assert project.states() == states


def test_a_mistake_in_params_stops_everything_before_it_runs(project: Project) -> None:
    before = (project.folder / "params.yaml").read_text()
    project.edit("configs", "ddp", "world_sise", value=3)
    with pytest.raises(AssertionError) as caught:
        project.run("dvc", "repro")
    assert "params.yaml: configs.ddp.world_sise: unknown key" in str(caught.value)
    assert "did you mean world_size?" in str(caught.value)
    assert set(re.findall(r"Running stage '([^']+)'", str(caught.value))) == {"validate"}
    (project.folder / "params.yaml").write_text(before)
    assert not any(stage.startswith("train@") for stage in project.stages("dvc", "repro"))
