"""Parity as a test: the function, the pytest fixture, and what the JUnit report says."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from trainparity.pytest_plugin import Parity
from trainparity.testing import NotSameTraining, Record, assert_same_training

ROOT = Path(__file__).parents[2]


def train(record: Record, parts: int = 1, lr: float = 0.1) -> None:
    torch.manual_seed(0)
    data = torch.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    record(model, optimizer)
    for step in range(4):
        for part in data[16 * step : 16 * (step + 1)].chunk(parts):
            (model(part).square().mean() / parts).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_accumulation_is_the_same_training(parity: Parity) -> None:
    verdict = parity.assert_same_training(train, lambda record: train(record, parts=4))
    assert verdict.verdict == "equivalent" and verdict.calibrated


def test_the_fixture_records_into_the_folder_that_it_is_given(parity: Parity, tmp_path: Path) -> None:
    assert parity.assert_same_training(train, train, folder=tmp_path / "kept").verdict == "bitwise"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]
    parity.assert_same_training(train, train)
    assert (tmp_path / "parity-2/reference/trace.json").exists()


def test_what_is_equal_in_every_bit_needs_no_twins(tmp_path: Path) -> None:
    assert assert_same_training(train, train, folder=tmp_path).verdict == "bitwise"
    assert not (tmp_path / "reference/twins").exists()
    assert assert_same_training(tmp_path / "reference", str(tmp_path / "other")).verdict == "bitwise"


def test_another_training_fails_and_says_why() -> None:
    with pytest.raises(NotSameTraining) as failed:
        assert_same_training(train, lambda record: train(record, lr=0.2))
    assert failed.value.verdict.cause == "learning-rate"
    first, advice, where = str(failed.value).splitlines()
    assert first == "different: learning-rate: the learning rate of other is 2 times that of reference"
    assert advice.startswith("to change: ") and where.startswith("beyond 16 x the noise floor from step 0 on")


def test_runs_that_are_kept_are_told_last_and_folders_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(NotSameTraining) as failed:
        assert_same_training(train, lambda record: train(record, lr=0.2), folder=tmp_path)
    again = f"to see it again: trainparity compare {tmp_path}/reference {tmp_path}/other"
    assert str(failed.value).splitlines()[-1] == again
    left, right = tmp_path / "reference", tmp_path / "none"
    with pytest.raises(NotSameTraining, match=r"^cannot judge: ") as failed:
        assert_same_training(left, right)
    assert (failed.value.verdict.left, failed.value.verdict.right) == (str(left), str(right))


def test_a_function_that_records_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="called record never; call it once"):
        assert_same_training(train, lambda record: None)


def test_a_function_that_makes_no_step_and_what_is_no_training_are_mistakes() -> None:
    def idle(record: Record) -> None:
        model = nn.Linear(2, 1)
        record(model, torch.optim.SGD(model.parameters()))

    with pytest.raises(ValueError, match="made no step with the optimizer"):
        assert_same_training(idle, idle)
    with pytest.raises(TypeError, match="a training is a int; give a function, or the folder of a run"):
        assert_same_training(train, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("twins", [-1, 1.5, True])
def test_a_number_of_twins_that_measures_nothing_is_a_mistake(twins: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^twins is {twins}; it must be "):
        assert_same_training(train, train, twins=twins)


PLUGIN = ["-p", "trainparity.pytest_plugin"]
"""Where the package is installed, pytest finds it by itself; in our images it is mounted."""

PROJECT = """
from tests.integrations.test_testing import train

def test_same(parity):
    parity.assert_same_training(train, train)

def test_other(parity):
    parity.assert_same_training(train, lambda record: train(record, lr=0.2), twins=1)
"""


def test_the_junit_report_has_verdict_and_cause(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(PROJECT)
    command = [sys.executable, "-m", "pytest", *PLUGIN, str(tmp_path), "--junitxml", str(tmp_path / "out.xml")]
    # PytestWarning is an error: many projects set `filterwarnings = error`.
    done = subprocess.run([*command, "-qW", "error::pytest.PytestWarning"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout
    found = {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    }
    assert found["test_same"]["trainparity.verdict"] == "bitwise"
    assert found["test_other"]["trainparity.verdict"] == "different"
    assert found["test_other"]["trainparity.cause"] == "learning-rate"


def test_the_plugin_costs_a_run_without_the_fixture_no_torch(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text("import sys\ndef test_it(): assert 'torch' not in sys.modules\n")
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-q", "--noconftest", "--trace-config", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "trainparity.pytest_plugin" in done.stdout


def test_an_installation_makes_the_plugin_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [(name, module)] = project["entry-points"]["pytest11"].items()
    assert name == module and importlib.import_module(module).Parity is Parity
