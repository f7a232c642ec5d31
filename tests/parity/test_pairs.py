"""The stage `compare` on runs that nobody trained: every verdict, from folders as a pipeline leaves them."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.report_tree import status
from tests.support.synthetic import scaled, trace, twins
from trainparity.params import Params, parse, reference_name
from trainparity.parity.pairs import compare_pairs, judge_configuration
from trainparity.records import layout
from trainparity.records.verdict import ParityReport

CONFIGS = ("same", "parts", "doubled", "half", "gpu", "crashed")


def params(**changes: Any) -> Params:
    content = {
        "workload": {"name": "ddpm"},
        "dataset": {"name": "digits"},
        "train": {"max_steps": 4, "global_batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        "configs": {name: {"precision": "bf16" if name == "half" else "fp32"} for name in CONFIGS},
        "pairs": {"mixed": {"left": "same", "right": "half"}},
    }
    return parse(content | changes, Path("params.yaml"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for reference, precision in (("reference-fp32", "fp32"), ("reference-bf16", "bf16")):
        keep(runs, reference, trace(layout={"precision": precision}))
        for number, twin in enumerate(twins(layout={"precision": precision}), 1):
            twin.save(layout.state(runs, reference) / "twins" / str(number))
    keep(runs, "same", trace())
    keep(runs, "parts", trace(parts=2))
    keep(runs, "doubled", trace(weights=(2.0,)))
    keep(runs, "half", trace(layout={"precision": "bf16"}))
    status("gpu", status="skipped", reason="no GPU").write(layout.status(runs, "gpu"))
    status("crashed", status="failed", reason="killed").write(layout.status(runs, "crashed"))
    keep(runs, "removed", trace())
    return tmp_path


def keep(runs: Path, name: str, found: Any) -> None:
    found.save(layout.state(runs, name))
    status(name).write(layout.status(runs, name))


def compared(root: Path, settings: Params) -> ParityReport:
    return compare_pairs(settings, root / "runs", root / "reports")


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def test_every_pair_has_its_verdict_and_failed_is_a_crash_alone(root: Path) -> None:
    report = compared(root, params())
    assert {name: pair.verdict for name, pair in report.pairs.items()} == {
        "same": "bitwise",
        "parts": "equivalent",
        "doubled": "different",
        "half": "bitwise",
        "gpu": "skipped",
        "crashed": "failed",
        "mixed": "cannot judge",
    }
    assert report.pairs["doubled"].cause == "loss-normalisation"
    assert report.pairs["crashed"].reason == "killed"
    assert "computes in fp32 and half in bf16" in (report.pairs["mixed"].reason or "")
    assert all(pair.steps_compared == 4 for pair in report.pairs.values() if pair.distance_over_floor is not None)
    assert (report.pairs["parts"].resolution or 0) > 0


@pytest.mark.parametrize("name", ["same", "parts", "doubled", "half", "gpu", "crashed"])
def test_one_configuration_is_judged_by_what_it_and_its_reference_have_left_alone(root: Path, name: str) -> None:
    settings = params()
    expected = compared(root, settings).pairs[name]
    reference = reference_name(settings.reference_of(name))
    for folder in (root / "runs/state").iterdir():
        if folder.name not in (name, reference):
            shutil.rmtree(folder)
    assert judge_configuration(settings, root / "runs", name) == expected


def test_the_files_say_the_same_and_are_strict_json(root: Path) -> None:
    report = compared(root, params())
    path = root / "reports/parity.json"
    assert ParityReport.read(path) == report
    assert list(json.loads(path.read_text(), parse_constant=refuse)["pairs"]) == list(params().pairs)
    with (root / "reports/distance.csv").open() as file:
        assert {row["pair"] for row in csv.DictReader(file)} == {"same", "parts", "doubled", "half"}


def test_a_run_that_was_removed_from_params_is_not_judged(root: Path) -> None:
    compared(root, params())
    fewer = compared(root, params(configs={"same": {"device": "cpu"}}, pairs={}))
    assert list(fewer.pairs) == ["same"]
    assert "removed" not in (root / "reports/parity.json").read_text()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_strict_json_as_well(root: Path, value: float) -> None:
    state = layout.state(root / "runs", "reference-fp32")
    trace(twin=2, gradients=scaled(value, "a.bias")).save(state / "twins/2")
    keep(root / "runs", "doubled", trace(gradients=scaled(value, since=1)))
    keep(root / "runs", "same", trace(start=value))
    report = compared(root, params())
    json.loads((root / "reports/parity.json").read_text(), parse_constant=refuse)
    assert report.pairs["doubled"].verdict == report.pairs["same"].verdict == "different"
    assert report.pairs["parts"].verdict == "cannot judge"


def test_without_a_reference_nothing_is_judged(root: Path) -> None:
    skipped = status("reference-fp32", status="skipped", reason="no GPU")
    skipped.write(layout.status(root / "runs", "reference-fp32"))
    report = compared(root, params())
    assert {report.pairs[name].verdict for name in ("same", "parts", "doubled", "gpu")} == {"skipped"}
    assert report.pairs["crashed"].verdict == "failed"
    failed = status("reference-fp32", status="failed", reason="killed")
    failed.write(layout.status(root / "runs", "reference-fp32"))
    assert compared(root, params()).pairs["same"].verdict == "failed"
