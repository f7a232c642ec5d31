"""What loading costs: every combination once, in a process of its own, on the batches of the real loop."""

import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support import warm
from trainparity.data import datasets
from trainparity.environment import detect
from trainparity.loading.memory import descendants_memory, shared_memory
from trainparity.loading.run import combinations, measure_all
from trainparity.params import Fake, Loading, Params, parse
from trainparity.records.loading import LoaderMeasurement, LoadingReport

ROOT = Path(__file__).parents[2]
COLD = sys.executable

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and resource limits of Linux")


def content(**loading: Any) -> dict[str, Any]:
    return {
        "parallel": "plain",
        "accelerator": "cpu",
        "workload": {"name": "tests.support.mlp:Mlp"},
        "dataset": {"name": "fake", "shape": [3, 32, 32], "size": 192},  # six equal batches
        "train": {"global_batch_size": 32, "optimizer": {"name": "adam", "lr": 0.001}},
        "timing": {"warmup_steps": 1},
        "references": {"fp32": {}},
        "configs": {"plain": {"strategy": "single", "device": "cpu", "precision": "fp32"}},
        "pairs": {},
        "loading": loading,
    }


def params(**loading: Any) -> Params:
    return parse(content(**loading), Path("params.yaml"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a prepared dataset, in which the processes find the tests' workload."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "executable", warm.python())
    datasets.prepare(Fake(name="fake", shape=[3, 32, 32], size=192), tmp_path / "data", tmp_path)
    return tmp_path


def measure(project: Path, **loading: Any) -> LoadingReport:
    settings, seen = params(**loading), list[LoaderMeasurement]()
    assert settings.loading
    report = measure_all(
        settings, settings.loading, detect(), data=project / "data", work=project / "work",
        progress=lambda done, of, measured: seen.append(measured),
    )  # fmt: skip
    assert seen == report.measurements and not (project / "work").exists()
    return report


def test_every_combination_that_makes_a_difference_is_measured_once() -> None:
    loading = Loading(
        workers=[0, 1, 2], start_methods=["fork", "spawn"], prefetch_factors=[2, 4], pin_memory=[False, True]
    )
    found = [loader for _, loader in combinations(loading)]
    assert len(found) == len(set(found)) == 2 * (1 + 2 * 2 * 2)
    without = [loader for loader in found if not loader.workers]
    assert [loader.pin_memory for loader in without] == [False, True]
    assert all(loader.start_method is None for loader in without)


@pytest.mark.slow
@needs_linux
def test_a_loader_is_timed_and_holds_as_many_batches_as_it_is_told_to(project: Path) -> None:
    report = measure(
        project, workers=[0, 2], start_methods=["fork"], prefetch_factors=[3], modes=["training", "loading"],
        epochs=2,
    )  # fmt: skip
    assert report.batches_per_epoch == 6 and report.global_batch_size == 32
    assert [(m.mode, m.workers, m.prefetch_factor) for m in report.measurements] == [
        (mode, *settings) for mode in ("training", "loading") for settings in ((0, None), (2, 3))
    ]
    for measured in report.measurements:
        figures = measured.figures
        assert measured.status == "ok" and figures, measured.reason
        assert figures.batches == 12
        assert figures.compared == figures.identical >= 4
        assert 0 < figures.wait_ms <= figures.step_ms and 0 < figures.epoch_wait_s <= figures.epoch_s
        assert figures.memory.batch_mib == 32 * (3 * 32 * 32 * 4 + 8 + 8) / 2**20
        # Those that wait, and the one in use.
        expected = measured.workers * measured.prefetch_factor + 1 if measured.prefetch_factor else 0
        assert figures.memory.batches_held == expected
        assert figures.memory.shared_mib is not None and figures.memory.workers_pss_mib is not None
        assert expected * figures.memory.batch_mib <= figures.memory.shared_mib
        assert (figures.memory.workers_pss_mib > 10) == (measured.workers > 0)
        assert figures.memory.workers_pss_mib <= figures.memory.workers_rss_mib


@pytest.mark.slow
@needs_linux
def test_workers_that_are_spawned_share_the_dataset_and_take_longer_to_start(project: Path) -> None:
    report = measure(project, workers=[1], start_methods=["fork", "spawn"], modes=["loading"], max_batches=3)
    forked, spawned = (measured.figures for measured in report.measurements)
    assert forked and spawned and forked.batches == spawned.batches == 3
    assert spawned.memory.batches_held == forked.memory.batches_held == 3
    dataset_mib = 192 * (3 * 32 * 32 * 4 + 8) / 2**20
    assert spawned.memory.shared_mib and forked.memory.shared_mib
    assert spawned.memory.shared_mib - forked.memory.shared_mib == pytest.approx(dataset_mib, abs=0.05)
    assert spawned.first_batch_s > forked.first_batch_s


def test_what_makes_no_sense_here_is_skipped_with_the_reason(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])  # as on Windows
    report = measure(project, workers=[0, 1], start_methods=["fork"], pin_memory=[False, True], max_batches=2)
    assert [measured.status for measured in report.measurements] == ["ok", "skipped", "skipped", "skipped"]
    reasons = [measured.reason or "" for measured in report.measurements]
    assert "can't start a process by fork" in reasons[1] and "pin_memory" in reasons[2]


@pytest.fixture
def small_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no file grow beyond 64 KiB, in this process and those it starts; a batch has 384 KiB."""
    monkeypatch.setattr(sys, "executable", COLD)  # a warm one has limits of its own
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@needs_linux
def test_a_loader_that_fails_is_no_figure_of_another(project: Path, small_files: None) -> None:
    report = measure(project, workers=[0, 1], start_methods=["fork"], max_batches=2)
    without, failed = report.measurements
    assert without.status == "ok" and failed.status == "failed" and failed.figures is None
    assert failed.reason and "File too large" in failed.reason and "num_workers 1" in failed.reason


def test_a_workload_that_fails_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = params(workers=[0]).model_copy(update={"workload": parse_workload(how="kill", after=1)})
    assert settings.loading
    report = measure_all(
        settings, settings.loading, detect(), data=project / "data", work=project / "work", progress=lambda *_: None
    )
    assert report.measurements[0].reason == "the measuring process ended with SIGKILL"


def parse_workload(**options: Any) -> Any:
    return params().workload.model_copy(update={"name": "tests.support.misbehaving:Misbehaving", "options": options})


def test_the_stage_writes_a_report_whole_or_says_what_is_missing(project: Path) -> None:
    def stage(name: str) -> subprocess.CompletedProcess[str]:
        command = [warm.python(), "-m", "trainparity.stages", name]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=os.environ)

    detect().write(project / "runs/environment.json")
    written = content(workers=[0], max_batches=2)
    (project / "params.yaml").write_text(yaml.safe_dump(written))
    assert stage("prepare").returncode == 0
    done = stage("loading")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1/1] training, 0 workers: ")
    report = LoadingReport.read(project / "runs/loading.json")
    assert report.fingerprint == detect().fingerprint and report.measurements[0].figures

    del written["loading"]
    (project / "params.yaml").write_text(yaml.safe_dump(written))
    done = stage("loading")
    assert done.returncode == 2 and done.stderr.startswith("params.yaml: loading: missing; ")


@needs_linux
def test_memory_of_descendants_and_what_they_share_is_seen() -> None:
    context = multiprocessing.get_context("fork")
    before_mib, before = descendants_memory().rss_mib, shared_memory()
    tensor = torch.ones(5 << 20, dtype=torch.uint8).share_memory_()
    ready, end = context.Event(), context.Event()

    def hold() -> None:
        kept = bytearray(os.urandom(1)) * (20 << 20)
        ready.set()
        end.wait(60)
        del kept

    child = context.Process(target=hold)
    child.start()
    assert ready.wait(60)
    memory, shared = descendants_memory(), shared_memory()
    end.set()
    child.join()
    assert memory.rss_mib > before_mib + 20 and memory.pss_mib is not None and 20 < memory.pss_mib < memory.rss_mib
    assert before and shared and shared.files == before.files + 1 and shared.mib == before.mib + 5
    assert tensor.is_shared()
