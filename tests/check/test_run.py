"""`trainparity check` on a right workload and on ones that train otherwise when the batch is cut."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def check(folder: Path, workload: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    path = folder / "answer.json"
    command = [sys.executable, "-m", "trainparity.cli", "check", workload, "--against", *arguments, "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert path.exists(), done.stderr
    return done.returncode, json.loads(path.read_text())["results"]


def test_a_right_workload_is_the_same_training_under_all_that_runs_here(tmp_path: Path) -> None:
    code, found = check(
        tmp_path, "examples.workload:Classifier", "ddp:2", "gradaccum:4", "fsdp-offload", "dp", "--steps=6"
    )
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
def test_a_fault_is_named_and_confirmed(tmp_path: Path, workload: str, cause: str, confirmed: str) -> None:
    code, found = check(tmp_path, f"tests.support.faulty:{workload}", "ddp:2", "--steps=4")
    pair = found["ddp-2"]
    assert (code, pair["verdict"], pair["cause"]) == (1, "different", cause)
    assert "in float64" in pair["confirmation"] and "it is not rounding" in pair["confirmation"]
    assert confirmed in pair["confirmation"]


def test_another_precision_is_judged_by_learning_curves_over_seeds(tmp_path: Path) -> None:
    code, found = check(tmp_path, "examples.workload:Classifier", "amp-bf16", "cuda", "tf32", "--steps=10", "--seeds=4")
    half = found["amp-bf16"]
    assert (half["verdict"], half["vacuous"]) == ("bitwise", True)  # the bf16 reference again
    assert half["curves"]["verdict"] == "consistent" and half["curves"]["runs"] == [4, 4]
    reduced = found["tf32"]
    assert reduced["vacuous"] == (reduced["verdict"] == "bitwise")
    assert reduced["vacuous"] or "needs an NVIDIA GPU" in reduced["reason"]  # which its own reference must not hide
    codes = {"skipped": 2, "bitwise": 0}
    assert code == max(codes[found[name]["verdict"]] for name in ("cuda", "tf32"))


def test_of_several_settings_the_one_that_makes_the_difference_is_named(tmp_path: Path) -> None:
    candidate = "gradaccum:2+offload-activations"
    options = ("--steps=2", "--no-float64", "--bisect")
    code, found = check(tmp_path, "tests.support.faulty:MeanLoss", candidate, *options)
    which = found["gradaccum-2-offload-activations"]["bisection"]
    assert code == 1 and which["smallest"] == [["gradaccum:2"]]
    assert which["tried"] == {"gradaccum:2": "different", "offload-activations": "bitwise"}
