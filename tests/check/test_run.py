"""`trainparity check` on a right workload and on ones that train otherwise when the batch is cut."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainparity import cli
from trainparity.launch.warm import warm_workers
from trainparity.ownership import OWNER, owned


@pytest.fixture(scope="module", autouse=True)
def workers() -> Iterator[None]:
    """Have one process to fork from for all these checks; `check` alone makes its own."""
    with warm_workers():
        yield


Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The command in this process: its exit code and the candidates' verdicts."""

    def run(workload: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        path = tmp_path / "answer.json"
        command = ["trainparity", "check", workload, "--against", *arguments, "--json", str(path)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int) and path.exists(), ended.value.code
        return ended.value.code, json.loads(path.read_text())["results"]

    return run


def test_a_right_workload_is_the_same_training_under_all_that_runs_here(check: Check) -> None:
    code, found = check("examples.workload:Classifier", "ddp:2", "gradaccum:4", "fsdp-offload", "dp", "--steps=6")
    assert {n: a["verdict"] for n, a in found.items()} == dict.fromkeys(found, "equivalent")
    assert list(found) == ["ddp-2", "gradaccum-4", "fsdp-offload", "dp"]
    assert code == 0


@pytest.mark.parametrize(
    ("workload", "cause", "confirmed"),
    [
        (
            "BatchNorm",
            "batchnorm-statistics",
            "against one process with the same micro-batches the weights are equivalent",
        ),
        ("Dropout", "randomness", "without dropout they are equivalent"),
        (
            "MeanLoss",
            "loss-normalisation",
            "against one process with the same micro-batches the weights are equivalent",
        ),
    ],
)
def test_a_fault_is_named_and_confirmed(check: Check, workload: str, cause: str, confirmed: str) -> None:
    code, found = check(f"tests.support.faulty:{workload}", "ddp:2", "--steps=4")
    pair = found["ddp-2"]
    assert (code, pair["verdict"], pair["cause"]) == (1, "different", cause)
    assert "in float64" in pair["confirmation"] and "it is not rounding" in pair["confirmation"]
    assert confirmed in pair["confirmation"]


@pytest.mark.study
def test_another_precision_is_judged_by_learning_curves_over_seeds(check: Check) -> None:
    code, found = check("examples.workload:Classifier", "amp-bf16", "cuda", "tf32", "--steps=10", "--seeds=4")
    half = found["amp-bf16"]
    assert (half["verdict"], half["vacuous"]) == ("bitwise", True)  # the bf16 reference again
    assert half["curves"]["verdict"] == "consistent" and half["curves"]["runs"] == [4, 4]
    reduced = found["tf32"]
    assert reduced["vacuous"] == (reduced["verdict"] == "bitwise")
    assert reduced["vacuous"] or "needs an NVIDIA GPU" in reduced["reason"]  # which its own reference must not hide
    codes = {"skipped": 2, "bitwise": 0}
    assert code == max(codes[found[name]["verdict"]] for name in ("cuda", "tf32"))


@pytest.mark.slow
def test_what_the_noise_floor_hides_is_judged_in_float64(check: Check) -> None:
    code, found = check("tests.support.faulty:Waves", "amp-bf16+gradaccum:4", "--steps=4", "--seeds=0")
    pair = found["amp-bf16-gradaccum-4"]
    assert (code, pair["verdict"]) == (0, "equivalent"), pair
    assert pair["confirmation"].startswith("judged in float64, as the noise floor is too wide")


@pytest.mark.slow
def test_what_a_coarse_format_rounds_away_is_seen_in_float64(check: Check) -> None:
    code, found = check("tests.support.faulty:Coupled", "amp-bf16+gradaccum:4", "--steps=2", "--seeds=0")
    pair = found["amp-bf16-gradaccum-4"]
    assert (code, pair["verdict"]) == (1, "different"), pair
    assert pair["confirmation"].endswith("the rounding of the runs' own format hid it")


@pytest.mark.slow
def test_fp32_further_than_right_runs_lie_is_judged_in_float64(check: Check) -> None:
    _, found = check("tests.support.faulty:Barely", "gradaccum:2", "--steps=2", "--seeds=0", "--no-float64")
    pair = found["gradaccum-2"]
    assert pair["verdict"] == "equivalent" and 5 < pair["distance_over_floor"] < 16, pair
    code, found = check("tests.support.faulty:Barely", "gradaccum:2", "--steps=2", "--seeds=0")
    pair = found["gradaccum-2"]
    assert (code, pair["verdict"], pair["cause"]) == (1, "different", "loss-or-targets"), pair
    assert "in gradaccum-2 the gradient of the loss" in pair["explanation"]


@pytest.mark.slow
def test_of_several_settings_the_one_that_makes_the_difference_is_named(check: Check) -> None:
    candidate = "gradaccum:2+offload-activations"
    options = ("--steps=2", "--no-float64", "--bisect")
    code, found = check("tests.support.faulty:MeanLoss", candidate, *options)
    which = found["gradaccum-2-offload-activations"]["bisection"]
    assert code == 1 and which["smallest"] == [["gradaccum:2"]]
    assert which["tried"] == {"gradaccum:2": "different", "offload-activations": "bitwise"}


def test_data_of_ones_own_in_the_folder_for_runs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/measurements.csv").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["trainparity", "check", "tests.support.mlp:Mlp", "--against", "dp", "--keep", "."]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("data: holds measurements.csv, which no ")
    assert (tmp_path / "data/measurements.csv").read_text() == "mine"


@pytest.mark.slow
def test_a_second_check_waits_for_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainparity.cli", "check", "tests.support.mlp:Mlp", "--against", "gradaccum:2"]
    with owned(tmp_path / "kept/runs"):
        second = subprocess.Popen(
            [*command, "--keep", str(tmp_path / "kept")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={k: v for k, v in os.environ.items() if k != OWNER} | {"COLUMNS": "300"},
        )  # fmt: skip
        assert second.stdout
        assert any("runs: waiting for process" in line for line in second.stdout)
        assert second.poll() is None and not (tmp_path / "kept/data").exists()
        second.kill()
        second.communicate()
