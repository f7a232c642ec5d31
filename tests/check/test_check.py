"""`trainparity check` on a right workload and on ones that train otherwise when the batch is cut."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainparity.check.candidates import CANDIDATES, name, parse
from trainparity.check.settings import assemble, candidates
from trainparity.params import Own
from trainparity.validation import ParamsError


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
    code, found = check(tmp_path, "examples.workload:Classifier", "amp-bf16", "cuda", "--steps=10", "--seeds=4")
    half = found["amp-bf16"]
    assert half["verdict"] == "bitwise"  # the bf16 reference again
    assert half["curves"]["verdict"] == "consistent" and half["curves"]["runs"] == [4, 4]
    expected = {"skipped": 2, "bitwise": 0}[found["cuda"]["verdict"]]
    assert code == expected


def test_candidates_are_words_with_numbers_joined_by_plus() -> None:
    both = parse("ddp:4+gradaccum:2+compiled")
    assert (both.strategy, both.world_size, both.accumulation_steps, both.compile) == ("ddp", 4, 2, "default")
    assert parse("fsdp-offload").offload == "both"
    assert name("ddp:4+gradaccum:2") == "ddp-4-gradaccum-2"
    for word in CANDIDATES:
        parse(word)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dpp", "'dpp' is not one of"),
        ("ddp:0", "'0' after ddp; allowed: a number from 1"),
        ("compiled:2", "'2' after compiled; allowed: no number"),
        ("dp:1", "splits a batch over at least 2 replicas"),
        ("dp+fsdp-offload+dp", "only fsdp offloads parameters"),
    ],
)
def test_a_mistake_in_a_candidate_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ParamsError, match=rf"--against {text.replace('+', '[+]')}: .*{message}"):
        parse(text)


def params(workload: str = "examples.workload:Classifier", **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "options": "{}",
        "dataset": None,
        "train": {"max_steps": 4, "global_batch_size": 32, "optimizer": "{name: sgd, lr: 0.1}"},
        "parity": {"window": 4},
        "accelerator": "auto",
    }
    return assemble(workload, candidates(["ddp:2"]), **settings | changes)


def test_a_workloads_own_data_is_used_unless_a_dataset_is_given() -> None:
    assert isinstance(params().dataset, Own)
    assert params(dataset="{name: digits, limit: 50}").dataset.limit == 50
    assert params("tests.support.mlp:Mlp").dataset.name == "digits"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": "{depth: 2}"}, "workload.options.depth"),
        ({"options": "[1]"}, "--options .*must be a mapping"),
        ({"options": "{a: "}, "--options .*not YAML"),
        ({"workload": "examples.workload:Klassifier"}, "can't be imported"),
        (
            {"train": {"max_steps": 4, "global_batch_size": 33, "optimizer": "{name: sgd, lr: 0.1}"}},
            "33 can't be divided",
        ),
    ],
)
def test_a_mistake_in_the_settings_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        params(**changes)
