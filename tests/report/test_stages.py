import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.report_tree import pair, pairs, runs, status, write_parity, write_run
from tests.support.synthetic import trace, twins
from trainparity.records import layout
from trainparity.report import tables
from trainparity.report.schema import Summary

OUTPUTS = (
    *("summary.json", "parity.csv", "timing.csv", "index.html", "report.md", "plots/loss.csv", "plots/step_time.csv"),
    *("figures/distance.svg", "figures/speedup.svg", "figures/step_time.svg"),
)


def run(stage: str, root: Path, *, forbid: str = "torch") -> subprocess.CompletedProcess[str]:
    """Run a stage in a folder; importing `forbid` fails."""
    start = "runpy.run_module('trainparity.stages', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", f"import runpy, sys; sys.modules[{forbid!r}] = None; {start}", stage]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_report_writes_everything_without_torch_and_in_any_process_the_same(
    root: Path, built: Summary, html: str
) -> None:
    done = run("report", root)
    assert done.returncode == 0, done.stderr
    assert "compiled" in done.stdout
    reports = root / "reports"
    assert all((reports / name).stat().st_size for name in OUTPUTS)
    assert Summary.read(reports / "summary.json") == built
    assert (reports / "timing.csv").read_text() == tables.timing(built)
    assert (reports / "index.html").read_text() == html
    assert not list((root / "reports").rglob("*.tmp"))


def test_a_pipeline_in_which_nothing_trained_has_its_report(root: Path) -> None:
    """As on a full disk: the next run would have to find the reason somewhere."""
    for run_status, _ in runs():
        failed = status(run_status.run, status="failed", reason="OSError: full", loss=None, steps=0)
        shutil.rmtree(layout.state(root / "runs", run_status.run))
        shutil.rmtree(layout.report(root / "runs", run_status.run), ignore_errors=True)
        write_run(root, failed, None)
    write_parity(
        root, {name: pair(p.right, "failed", left=p.left, reason="OSError: full") for name, p in pairs().items()}
    )
    done = run("report", root)
    assert done.returncode == 0, done.stderr
    assert "OSError: full" in done.stdout and "OSError: full" in (root / "reports/index.html").read_text()


def test_report_names_a_mistake_in_params(root: Path) -> None:
    (root / "params.yaml").write_text("parallel: dpp\n")
    done = run("report", root)
    assert done.returncode == 2
    assert "params.yaml: " in done.stderr
    assert not (root / "reports" / "summary.json").exists()


def test_report_names_a_missing_record(root: Path) -> None:
    missing = layout.timing(Path("runs"), "ddp")
    (root / missing).unlink()
    done = run("report", root)
    assert done.returncode == 2
    assert str(missing) in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "reports" / "index.html").exists()


def keep_reference(root: Path) -> None:
    state = layout.state(root / "runs", "reference-fp32")
    trace().save(state)
    for number, twin in enumerate(twins(), 1):
        twin.save(state / "twins" / str(number))


@pytest.mark.parametrize("scale, verdict, cause", [(1.0, "equivalent", None), (2.0, "different", "loss-normalisation")])
def test_experiment_reads_its_own_run_and_its_reference_only(
    root: Path, scale: float, verdict: str, cause: str | None
) -> None:
    states = {name: layout.state(root / "runs", name) for name in ("reference-fp32", "ddp")}
    kept = {layout.timing(root / "runs", "ddp"), *(layout.status(root / "runs", name) for name in states)}
    for path in (root / "runs").rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    keep_reference(root)
    trace(parts=2, weights=(scale, scale)).save(states["ddp"])
    done = run("experiment", root, forbid="jinja2")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((root / "metrics.json").read_text())
    assert (metrics["configuration"], metrics["verdict"], metrics["cause"]) == ("ddp", verdict, cause)
    assert (metrics["distance_over_floor"] > 16) == (verdict == "different")
    assert metrics["step_ms"] == pytest.approx(31, rel=0.02)
    assert set(metrics) == {
        *("configuration", "status", "verdict", "cause", "distance_over_floor", "device", "loss"),
        *("step_ms", "samples_per_s", "peak_memory_mib", "compile_s"),
    }


def test_experiment_of_a_skipped_run_has_its_status_and_nothing_else(root: Path) -> None:
    skipped = status("ddp", status="skipped", reason="no GPU", device=None, loss=None)
    write_run(root, skipped, None)
    keep_reference(root)
    assert run("experiment", root, forbid="jinja2").returncode == 0
    metrics = json.loads((root / "metrics.json").read_text())
    assert metrics.pop("configuration") == "ddp"
    assert metrics.pop("status") == metrics.pop("verdict") == "skipped"
    assert set(metrics.values()) == {None}


def test_experiment_names_a_mistake(root: Path) -> None:
    shutil.rmtree(layout.state(root / "runs", "ddp"))
    assert run("experiment", root, forbid="jinja2").returncode == 2
    (root / "params.yaml").write_text("parallel: dpp\n")
    assert run("experiment", root, forbid="jinja2").returncode == 2
