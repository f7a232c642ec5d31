"""A training whose loader's workers die is the same training."""

from pathlib import Path
from typing import Any

import pytest

from tests.support import runs
from trainparity.params import Timing, Workload
from trainparity.training import timing_phase
from trainparity.training.spec import RunSpec

LOADER = {"workers": 2, "start_method": "fork"}


def spec(folder: Path, name: str, *, workload: str = "tests.support.mlp:Mlp", **options: Any) -> RunSpec:
    settings = runs.configuration(loader=LOADER if options else {})
    plain = runs.spec(folder, folder / "data", name, settings=settings, steps=12)
    return plain.model_copy(update={"workload": Workload(name=workload, options=options)})


def test_workers_that_die_in_a_step_change_no_bit_of_the_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.prepared(tmp_path)
    plain = spec(tmp_path, "plain")
    deadly = spec(tmp_path, "deadly", workload="tests.support.misbehaving:Misbehaving", how="kill-workers")
    runs.run_phase(plain)
    runs.run_phase(deadly)
    for name in ("weights.safetensors", "trace.safetensors", "loss.csv"):
        left, right = (each.work / "state" / name for each in (plain, deadly))
        assert left.read_bytes() == right.read_bytes(), name
    said = capfd.readouterr().err
    assert said.count("This process loads the remaining batches, which are the same") == 1
    assert "ended by SIGKILL" in said and "num_workers 2 x prefetch_factor 2" in said


def test_the_times_of_a_run_say_that_its_workers_failed(tmp_path: Path) -> None:
    runs.prepared(tmp_path)
    settings = Timing(warmup_steps=1, steps=11)
    deadly = spec(tmp_path, "deadly", workload="tests.support.misbehaving:Misbehaving", how="kill-workers")
    timing = timing_phase.measure(deadly, settings, runs.trainer_of(deadly), lambda: None)
    assert timing.loader_failures == 1 and len(timing.step_ms) == 11
    whole = spec(tmp_path, "whole", hidden=8)
    assert timing_phase.measure(whole, settings, runs.trainer_of(whole), lambda: None).loader_failures == 0
