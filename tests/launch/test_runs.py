"""Real worker processes: trained, skipped, failed, interrupted and resumed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.support import warm
from trainparity.data import datasets
from trainparity.environment import detect
from trainparity.errors import StoppedBySignal, UserError
from trainparity.launch.runs import run_configuration, run_reference
from trainparity.launch.warm import warm_workers
from trainparity.params import Params, parse
from trainparity.parity.pairs import compare_pairs, load_run
from trainparity.records import layout
from trainparity.records.run import Status
from trainparity.records.timing import Timing

ROOT = Path(__file__).parents[2]
COLD = sys.executable
"""For what a signal is sent to: a warm Python could not hand it on."""
RUNS = Path("runs")
WARM = ("plain", "gpu", "tensor-parallel", "2d")
DISTRIBUTED = ("ddp", "tensor-parallel", "2d")
REFERENCE = "reference-fp32"
LIMIT = 0.5
"""Norm that gradients are clipped to: lower than that of most steps."""


def params(workload: dict[str, Any] | None = None, **train: Any) -> Params:
    content = {
        "parallel": "ddp",
        "accelerator": "cpu",
        "workload": workload or {"name": "tests.support.mlp:Mlp"},
        "dataset": {"name": "digits", "limit": 200},
        "train": {
            "epochs": 4,
            "max_steps": 28,
            "global_batch_size": 32,
            "checkpoint_every": 5,
            "optimizer": {"name": "adam", "lr": 0.001},
            "clip_norm": LIMIT,
            **train,
        },
        "parity": {"twins": 1, "window": 10},
        "timing": {"warmup_steps": 1, "steps": 3},
        "references": {"fp32": {}},
        "configs": {
            "plain": {"strategy": "single", "device": "cpu", "precision": "fp32"},
            "gpu": {"strategy": "single", "device": "mps", "precision": "fp32"},
            "ddp": {"strategy": "ddp", "device": "cpu", "precision": "fp32", "world_size": 2},
            "tensor-parallel": {"strategy": "tensor_parallel", "world_size": 2},
            "2d": {"strategy": "fsdp_tensor_parallel", "world_size": 4, "tensor_parallel_size": 2},
        },
        "pairs": {},
    }
    return parse(content, Path("params.yaml"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder with a dataset, a reference, and uninterrupted runs."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setattr(sys, "executable", warm.python())
        datasets.prepare(params().dataset, Path("data/prepared"), Path("downloads"))
        with warm_workers():  # and the other by torchrun
            status = run_reference(params(), detect(), "fp32", runs=RUNS, data=Path("data/prepared"))
            assert status.status == "trained", status.reason
            assert [run(params(), name).status for name in WARM] == ["trained", "skipped", "trained", "trained"]
        assert [run(params(), name).status for name in params().configs if name not in WARM] == ["trained"]
    return folder


@pytest.mark.slow
def test_ranks_train_what_one_process_trains(trained: Path) -> None:
    runs = trained / RUNS
    verdicts = compare_pairs(params(), runs, trained / "reports").pairs
    for name in DISTRIBUTED:
        verdict, reference, found = verdicts[name], *(load_run(layout.state(runs, r)).trace for r in (REFERENCE, name))
        assert reference and found
        assert verdict.verdict in ("bitwise", "equivalent"), verdict
        assert verdict.ranks_agree and verdict.steps_compared == 28
        for fact in ("sample_ids", "num_samples", "clip/calls", "clip/max_norm"):
            assert torch.equal(reference.arrays[fact], found.arrays[fact]), (name, fact)
        norms = found.arrays["rank/clip_norm"]
        assert (norms == norms[:, :1]).all() and (norms > LIMIT).any()
        torch.testing.assert_close(norms[:, :1], reference.arrays["rank/clip_norm"], rtol=1e-4, atol=0)
        weights = [load_file(layout.weights(runs, run)) for run in (REFERENCE, name)]
        assert {n: w.shape for n, w in weights[0].items()} == {n: w.shape for n, w in weights[1].items()}


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working directory."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(sys, "executable", warm.python())
    return tmp_path


@pytest.fixture
def cold(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", COLD)


def run(settings: Params, name: str) -> Status:
    return run_configuration(settings, detect(), name, runs=RUNS, data=Path("data/prepared"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_trained_run_leaves_state_and_report(here: Path) -> None:
    status = Status.read(layout.status(RUNS, "ddp"))
    assert (status.status, status.steps, status.device, status.world_size) == ("trained", 28, "cpu", 2)
    assert set(files(layout.state(RUNS, "ddp"))) == {
        "loss.csv", "status.json", "trace.json", "trace.safetensors", "weights.safetensors"
    }  # fmt: skip
    timing = Timing.read(layout.timing(RUNS, "ddp"))
    assert len(timing.step_ms) == 3 and timing.global_batch_size == 32 and timing.world_size == 2
    assert len(timing.reference_ms) == 3 and min(timing.reference_ms) > 0  # rank 0 trained it between the steps
    assert timing.parts and timing.parts.reduction_ms is not None and timing.parts.reduction_ms >= 0
    # Forward and both gradients of two layers, less the gradient of the data.
    assert timing.flops_per_step == pytest.approx(32 * (2 * 64 * 24 * 2 + 2 * 24 * 10 * 3))
    assert not (here / ".trainparity/work/runs/ddp").exists()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ  # set for the ranks; `check` is called in a user's process, too


def test_what_the_machine_cannot_run_is_skipped_with_the_reason(here: Path) -> None:
    status = run(params(), "gpu")
    assert status.status == "skipped" and "Apple" in (status.reason or "") and status.remedy
    assert Status.read(layout.status(RUNS, "gpu")) == status


@pytest.mark.parametrize("name", ["gpu", "plain"])
def test_a_folder_that_no_run_has_left_is_refused_before_anything_trains(here: Path, name: str) -> None:
    mine = layout.state(RUNS, name) / "notes.txt"
    shutil.rmtree(mine.parent)
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(UserError, match=f"runs/state/{name}: holds no status.json"):
        run(params(), name)
    assert mine.read_text() == "mine" and not (here / ".trainparity/work/runs" / name / "spec.json").exists()


def misbehaving(how: str, **options: Any) -> Params:
    return params({"name": "tests.support.misbehaving:Misbehaving", "options": {"how": how, **options}})


LOSS = Path(__file__).parents[1] / "support/misbehaving.py"


@pytest.mark.slow
def test_a_crash_is_failed_with_the_rank_and_its_message(here: Path, cold: None) -> None:
    status = run(misbehaving("raise", rank=1), "ddp")
    assert status.status == "failed"
    assert (status.reason or "").startswith("rank 1: ValueError: no loss for sample ")
    assert set(files(layout.state(RUNS, "ddp"))) == {"status.json"}
    assert set(files(layout.report(RUNS, "ddp"))) == {"untrained.json", "files-read.json"}


@pytest.mark.parametrize(
    ("how", "name", "reason"),
    [
        ("kill", "ddp", "rank 1 was ended by SIGKILL"),  # and no word of rank 0, which lost its connection
        (
            "segfault",
            "ddp",
            f"rank 1 was ended by SIGSEGV (a segmentation fault, of compiled code), called from {LOSS}:",
        ),
        ("os-exit", "plain", "rank 0 ended with exit code 0 before its training did"),
        ("exit", "plain", "rank 0: the program called sys.exit(0)"),
    ],
)
def test_the_first_death_is_blamed(here: Path, how: str, name: str, reason: str) -> None:
    status = run(misbehaving(how, rank=1 if name == "ddp" else 0), name)
    assert status.status == "failed"
    assert (status.reason or "").startswith(reason)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(("name", "rank"), [("plain", 0), ("ddp", 1)])
def test_a_full_disk_fails_no_run(here: Path, name: str, rank: int) -> None:
    """It would stay failed when there is room."""
    before = Status.read(layout.status(RUNS, name))
    with pytest.raises(UserError, match=rf"{name}: rank {rank}: OSError: .* No space left on device .*; make room"):
        run(misbehaving("write", rank=rank), name)
    assert Status.read(layout.status(RUNS, name)) == before


@pytest.mark.slow
def test_a_hang_ends_at_its_deadline_and_says_who_waited_for_whom(here: Path) -> None:
    status = run(misbehaving("hang", rank=1).model_copy(update={"step_deadline_s": 14.0}), "ddp")
    assert status.status == "failed"
    hung, waited = r"rank 1 was in \S*tests/support/misbehaving.py:\d+ loss", r"rank 0 waited in \S+:\d+ \w+"
    assert re.fullmatch(f"no step ended in 0:00:1[45]: {hung}(; {waited})?", status.reason or "")


def test_a_run_whose_reference_did_not_train_is_skipped(here: Path) -> None:
    run_reference(misbehaving("raise"), detect(), "fp32", runs=RUNS, data=Path("data/prepared"))
    status = run(params(), "plain")
    assert status.status == "skipped"
    assert "its reference did not train: reference-fp32 failed: rank 0: ValueError" in (status.reason or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("plain", signal.SIGTERM),
        pytest.param("2d", signal.SIGINT, marks=pytest.mark.study),
        ("ddp", signal.SIGKILL),
    ],
)
def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(
    here: Path, trained: Path, name: str, number: signal.Signals
) -> None:
    settings = misbehaving("slow", after=12)
    Path("params.yaml").write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    detect().write(layout.environment(RUNS))
    shutil.rmtree(layout.state(RUNS, name))
    shutil.rmtree(layout.report(RUNS, name))
    command = [COLD, "-m", "trainparity.stages", "train", name]
    stage = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    checkpoint = here / f".trainparity/work/runs/{name}/checkpoints/run/state.json"
    wait_for(checkpoint, stage)
    ranks = psutil.Process(stage.pid).children(recursive=True)
    stage.send_signal(number)  # SIGKILL to the stage alone, which can't tell its ranks
    _, errors = stage.communicate(timeout=60)
    assert stage.returncode == (-number if number == signal.SIGKILL else 128 + number), errors
    assert not psutil.wait_procs(ranks, timeout=10)[1]
    assert not layout.state(RUNS, name).exists() and not layout.report(RUNS, name).exists()
    timed = (here / f".trainparity/work/runs/{name}/report/timing.json").read_bytes()
    resumed = subprocess.run([warm.python(), *command[1:]], capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert files(layout.state(RUNS, name)) == files(trained / layout.state(RUNS, name))
    assert layout.timing(RUNS, name).read_bytes() == timed


@pytest.mark.parametrize(("factor", "step"), [("1.0", 26), ("2.0", 13)])
def test_an_interrupted_run_begins_anew_if_what_it_has_read_was_edited(
    here: Path, capfd: pytest.CaptureFixture[str], factor: str, step: int
) -> None:
    settings = misbehaving("stop", after=12)
    workload = settings.workload.model_copy(update={"name": "tests.support.reading:Reading"})
    settings = settings.model_copy(update={"workload": workload})
    for text, stopped in (("1.0", 13), (factor, step)):
        Path("factor.txt").write_text(text)
        with pytest.raises(StoppedBySignal):
            run_reference(settings, detect(), "fp32", runs=RUNS, data=Path("data/prepared"), timed=False)
        assert f"stopped after step {stopped} of 28" in capfd.readouterr().err


@pytest.mark.slow
def test_what_a_stopped_run_waits_for_is_said_at_once_and_a_second_signal_ends_it(here: Path, trained: Path) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(misbehaving("hang", after=12).model_dump(mode="json")))
    detect().write(layout.environment(RUNS))
    command = [COLD, "-m", "trainparity.stages", "train", "plain"]
    stage = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(here / "hangs", stage)
    stage.send_signal(signal.SIGINT)
    assert stage.stderr and "a second signal ends it at once" in stage.stderr.readline()
    time.sleep(1.5)  # before, it would be the first one again
    stage.send_signal(signal.SIGINT)
    _, errors = stage.communicate(timeout=30)  # half of what a checkpoint may take
    assert (stage.returncode, errors) == (130, "stopped by SIGINT; run it again to resume from the last checkpoint\n")


@pytest.mark.slow
def test_runs_forked_from_a_warm_process_write_the_same_bits_and_die_the_same(
    here: Path, cold: None, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LOCAL_RANK"):  # of a caller that is a rank itself
        monkeypatch.setenv(name, "1")
    with warm_workers():
        for name in ("plain", "ddp"):
            assert run(params(), name).status == "trained"
            assert files(layout.state(RUNS, name)) == files(trained / layout.state(RUNS, name))
        assert (run(misbehaving("kill"), "plain").reason or "").startswith("rank 0 was ended by SIGKILL")
        assert (run(misbehaving("raise"), "plain").reason or "").startswith("rank 0: ValueError: no loss")
        assert (run(misbehaving("os-exit"), "plain").reason or "").startswith("rank 0 ended with exit code 0")
        assert (run(misbehaving("kill", rank=1), "ddp").reason or "").startswith("rank 1 was ended by SIGKILL")
        assert (run(misbehaving("raise", rank=1), "ddp").reason or "").startswith("rank 1: ValueError: no loss")
        assert run(misbehaving("start-method"), "plain").status == "trained"
        with pytest.raises(UserError, match="forked from was killed"):  # and no rank is blamed
            run(misbehaving("kill-parent"), "plain")
    here_too = [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(here) and p.pid != os.getpid()]
    assert not psutil.wait_procs(here_too, timeout=10)[1]


@pytest.mark.slow
def test_ranks_forked_from_a_warm_process_stop_with_it(here: Path) -> None:
    stopped = (
        "from tests.launch.test_runs import misbehaving, run; from trainparity.launch.warm import warm_workers\n"
        "with warm_workers():\n    run(misbehaving('slow', after=12), 'ddp')"
    )
    caller = subprocess.Popen([COLD, "-c", stopped], stderr=subprocess.PIPE, text=True)
    wait_for(here / ".trainparity/work/runs/ddp/checkpoints/run/state.json", caller)
    ranks = psutil.Process(caller.pid).children(recursive=True)
    assert len(ranks) >= 3  # and the process that they are copies of
    caller.send_signal(signal.SIGTERM)
    _, errors = caller.communicate(timeout=60)
    assert "StoppedBySignal" in errors and "resume" in errors, errors
    assert not psutil.wait_procs(ranks, timeout=10)[1]


@pytest.mark.slow
def test_a_run_has_one_owner_at_a_time(here: Path, trained: Path) -> None:
    """The second process waits and takes what the first made; trained at once, they would destroy it."""
    Path("params.yaml").write_text(yaml.safe_dump(misbehaving("slow", after=12).model_dump(mode="json")))
    detect().write(layout.environment(RUNS))
    command = [COLD, "-m", "trainparity.stages", "train", "plain"]
    stages = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [stage.communicate(timeout=120) for stage in stages]
    assert [stage.returncode for stage in stages] == [0, 0], outputs
    assert sum("waiting for process" in output for output, _ in outputs) == 1
    assert [output.splitlines()[-1] for output, _ in outputs] == ["plain: trained"] * 2
    assert files(layout.state(RUNS, "plain")) == files(trained / layout.state(RUNS, "plain"))


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)
