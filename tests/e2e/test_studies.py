"""Every study at its smallest scale, through `trainparity studies`: real pipelines, real data, all claims answered."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.support.project import ROOT, copy_small, in_copy
from trainparity.records.claims import ClaimReport
from trainparity.records.verdict import ParityReport

STUDIES = sorted(path.parent.name for path in ROOT.glob("studies/*/dvc.yaml"))

EXACT = {"ddp-vs-accumulation": ("B1", "B2", "B3"), "cpu-offload": ("E0",)}
"""Claims that hold at any scale and on any machine."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "project"
    copy_small(folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["python", "-m", "trainparity.cli", "studies", *arguments]
    return subprocess.run(command, cwd=project, env=in_copy(project), capture_output=True, text=True, check=False)


@pytest.mark.study
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_ends_and_answers_every_claim(project: Path, name: str) -> None:
    done = run(project, name, "--scale", "smoke", "--save", "kept")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    folder = project / "studies" / name
    report = ClaimReport.read(folder / "reports/claims.json")
    assert report.scale == "smoke"
    assert ClaimReport.read(project / f"kept/{name}-smoke.json") == report
    assert [result.name for result in report.results] == list(yaml.safe_load((folder / "claims.yaml").read_text()))
    for result in report.results:
        assert result.measured or result.reason, result
        assert f"{result.name}:" in done.stdout
    pairs = ParityReport.read(folder / "reports/parity.json").pairs
    assert {pair.verdict for pair in pairs.values()} <= {"bitwise", "equivalent", "different", "skipped"}, pairs
    assert (folder / "reports/index.html").read_text().count("<tr") > len(report.results)
    verdicts = {result.name: result.verdict for result in report.results}
    assert {verdicts[claim] for claim in EXACT.get(name, ())} <= {"confirmed"}


@pytest.mark.slow
def test_a_study_that_is_not_there_is_named(project: Path) -> None:
    done = run(project, "torch-compiler")
    assert done.returncode == 2
    assert "'torch-compiler' is not one of" in done.stderr and "did you mean torch-compile?" in done.stderr


def test_a_scale_that_is_not_there_changes_nothing(project: Path) -> None:
    path = project / "studies/torch-compile/params.yaml"
    before = path.read_text()
    done = run(project, "torch-compile", "--scale", "huge")
    assert done.returncode == 2 and "scale: 'huge' is not one of smoke, laptop, article" in done.stderr
    assert path.read_text() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_list_of_studies(tmp_path: Path, number: int) -> None:
    for name in ("first", "second"):
        (tmp_path / "studies" / name).mkdir(parents=True)
        shutil.copy(ROOT / "studies/ddp-vs-accumulation/params.yaml", tmp_path / "studies" / name)
        stage = {"cmd": f"touch {tmp_path}/began-{name}; sleep 60"}
        (tmp_path / "studies" / name / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"wait": stage}}))
    shutil.copytree(ROOT / "studies/.dvc", tmp_path / "studies/.dvc")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "trainparity.cli", "studies", "--scale", "smoke"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "began-first").exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 128 + number, errors
    assert f"stopped by {signal.Signals(number).name}; `dvc repro` in studies/first resumes it" in errors
    assert not (tmp_path / "began-second").exists()
