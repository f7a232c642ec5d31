from pathlib import Path
from typing import Any

import pytest

from tests.support.report_tree import (
    known_answer,
    pair,
    pairs,
    status,
    timing,
    write_parity,
    write_run,
)
from trainparity.params import load
from trainparity.records import layout
from trainparity.records.base import RecordError
from trainparity.records.claims import ClaimReport
from trainparity.records.curves import CurveReport, CurveResult
from trainparity.records.timing import MachineLoad, Memory
from trainparity.records.verdict import Verdict
from trainparity.report import artifacts, summary, words
from trainparity.report.schema import RunSummary, Summary


def build(root: Path) -> Summary:
    return summary.build(artifacts.read(root, load(root / "params.yaml")))


def replace_pair(root: Path, name: str, **others: Verdict) -> None:
    write_parity(root, {n: pair for n, pair in pairs().items() if n != name} | others)


def withheld(run: RunSummary) -> str:
    assert run.speedup is None
    assert run.speedup_withheld is not None
    return run.speedup_withheld


def test_the_same_training_gets_a_speedup_with_an_interval(built: Summary) -> None:
    run = built.configurations["ddp"]
    assert run.speedup is not None
    assert run.speedup_withheld is None
    assert run.speedup.ratio == pytest.approx(40 / 31, rel=0.02)
    assert run.speedup.low < run.speedup.ratio < run.speedup.high
    assert run.reference == "reference-fp32"
    assert run.reference_device == "cpu"


def test_bitwise_is_the_same_training_too(built: Summary) -> None:
    assert built.configurations["cpu"].speedup is not None


def test_what_differs_has_its_time_but_no_speedup(built: Summary) -> None:
    run = built.configurations["lr-doubled"]
    assert run.figures is not None
    assert "verdict different" in withheld(run)


def test_what_is_emulated_has_its_time_but_no_speedup(built: Summary) -> None:
    run = built.configurations["dp"]
    assert run.verdict and run.verdict.verdict == "equivalent"
    assert run.status.emulated
    assert run.figures is not None
    assert "DataParallel over CPU replicas" in withheld(run)


@pytest.mark.parametrize("name", ["mps", "broken"])
def test_what_did_not_train_has_no_figures(built: Summary, name: str) -> None:
    run = built.configurations[name]
    assert run.status.status in withheld(run)
    assert run.status.reason
    assert run.timing is run.figures is None


def test_no_pair_no_speedup(root: Path) -> None:
    replace_pair(root, "ddp")
    run = build(root).configurations["ddp"]
    assert run.verdict is None
    assert "no pair" in withheld(run)


def test_a_pair_that_was_not_judged_gives_no_speedup(root: Path) -> None:
    replace_pair(root, "ddp", ddp=pair("ddp", "skipped", reason="no trace"))
    assert "verdict skipped" in withheld(build(root).configurations["ddp"])


def test_the_verdict_comes_from_the_pair_with_the_own_reference(root: Path) -> None:
    wrong_precision = pair("ddp", "different", left="reference-bf16")
    replace_pair(root, "cpu", cpu=wrong_precision, ddp=pair("ddp", left="reference-fp32"))
    verdict = build(root).configurations["ddp"].verdict
    assert verdict and verdict.verdict == "equivalent"


def test_a_reference_that_is_emulated_gives_no_speedup(root: Path) -> None:
    write_run(root, status("reference-fp32", emulated="half of it"), timing("reference-fp32", 40.0))
    assert "reference-fp32" in withheld(build(root).configurations["ddp"])


def test_steps_that_shared_the_machine_give_no_speedup(root: Path) -> None:
    shared = MachineLoad(others=0.45, stolen=0.2, slowest_mhz=1900.0, fastest_mhz=2500.0, throttled=3)
    steps = [10.0, 11.0, 12.0, 90.0, 95.0, 99.0]
    time_ddp(root, step_ms=steps, reference_ms=steps, machine=shared)
    sentence = withheld(build(root).configurations["ddp"])
    assert "trainparity train --again ddp" in sentence
    assert "45 % of the processors, 20 % went to other virtual machines" in sentence
    assert "clock went from 2,500 to 1,900 MHz and cores were slowed down for their heat 3 times" in sentence


def test_a_reference_that_shared_the_machine_gives_no_speedup_either(root: Path) -> None:
    time_ddp(root, step_ms=[10.0] * 20, reference_ms=[20.0] * 10 + [90.0] * 10)
    assert "or those of its reference beside it, scatter too much" in withheld(build(root).configurations["ddp"])


def test_a_run_that_took_no_turns_with_its_reference_has_no_speedup(root: Path) -> None:
    time_ddp(root, reference_ms=[], unpaired="the reference does not fit on cuda beside it")
    assert "does not fit on cuda beside it" in withheld(build(root).configurations["ddp"])


def test_too_few_pairs_give_no_interval_and_no_speedup(root: Path) -> None:
    time_ddp(root, step_ms=[5.0] * 5, reference_ms=[10.0] * 5)
    assert "6 at least (timing.steps)" in withheld(build(root).configurations["ddp"])
    time_ddp(root, step_ms=[5.0] * 6, reference_ms=[10.0] * 6)
    built = build(root).configurations["ddp"]
    assert built.speedup and built.speedup.ratio == 2


def test_the_speedup_is_that_of_the_turns_whatever_the_reference_took_alone(root: Path) -> None:
    before = build(root).configurations["ddp"].speedup
    write_run(root, status("reference-fp32"), timing("reference-fp32", 400.0))
    assert build(root).configurations["ddp"].speedup == before


def time_ddp(root: Path, **changes: Any) -> None:
    write_run(root, status("ddp", strategy="ddp", world_size=2), timing("ddp", 1.0, **changes))


def test_a_speedup_between_devices_says_so(root: Path) -> None:
    on_gpu = timing("reference-fp32", 4.0, memory=Memory(host_mib=900, device_allocated_mib=300))
    write_run(root, status("reference-fp32", device="cuda"), on_gpu)
    built = build(root)
    assert built.configurations["cpu"].speedup is not None
    assert built.configurations["cpu"].status.device == "cpu"
    assert built.configurations["cpu"].reference_device == "cuda"
    figures = built.references["fp32"].figures
    assert figures and figures.peak_memory_mib == 300


def test_a_reference_is_its_own_reference_and_has_no_speedup(built: Summary) -> None:
    run = built.references["fp32"]
    assert run.reference == "reference-fp32"
    assert run.verdict is None
    assert "reference" in withheld(run)


def test_figures_follow_from_the_steps(root: Path) -> None:
    measured = timing("ddp", 1.0, step_ms=[10.0, 20.0, 30.0], wait_ms=[1.0, 2.0, 9.0], flops_per_step=4e9)
    write_run(root, status("ddp", strategy="ddp", world_size=2), measured)
    run = build(root).configurations["ddp"]
    assert run.timing == measured and run.figures is not None
    figures = run.figures
    assert (figures.step_ms.p10, figures.step_ms.median, figures.step_ms.p90) == (12.0, 20.0, 28.0)
    assert figures.samples_per_s == 64 / 0.020
    assert figures.wait_ms == 2.0
    assert figures.flops_per_s == pytest.approx(2e11)
    assert figures.peak_flops_fraction == pytest.approx(2e11 / 9.8e10)
    assert figures.peak_memory_mib == 612.5


def test_a_diverged_loss_is_null(root: Path) -> None:
    write_run(root, status("ddp", loss=float("inf")), timing("ddp", 31.0))
    assert build(root).configurations["ddp"].status.loss is None


def test_what_an_untrained_run_left_from_earlier_is_not_read(root: Path) -> None:
    write_run(root, status("cpu", status="failed", reason="killed", loss=None), None)
    assert layout.timing(root / "runs", "cpu").exists()
    assert build(root).configurations["cpu"].timing is None


def test_a_pipeline_without_known_answer_has_none(root: Path) -> None:
    (layout.known_answer(root / "runs") / "result.json").unlink()
    assert build(root).known_answer is None


@pytest.mark.parametrize("path", ["runs/environment.json", str(layout.status(Path("runs"), "ddp")), "reports/detail"])
def test_a_missing_artifact_is_named(root: Path, path: str) -> None:
    (root / path).rename(root / "elsewhere")
    with pytest.raises(RecordError, match=path):
        build(root)


def test_a_damaged_table_is_named(root: Path) -> None:
    layout.losses(root / "runs", "ddp").write_text("step,loss\n0,one\n")
    with pytest.raises(RecordError, match=r"loss\.csv"):
        build(root)


def test_the_summary_survives_its_file(built: Summary, tmp_path: Path) -> None:
    built.write(tmp_path / "summary.json")
    assert Summary.read(tmp_path / "summary.json") == built
    assert built.known_answer == known_answer()


def test_what_was_removed_from_params_does_not_reach_the_summary_or_the_page(root: Path) -> None:
    write_run(root, status("removed"), timing("removed", 1.0))
    write_parity(root, pairs() | {"removed": pair("removed")})
    result = CurveResult(verdict="drifted", runs=[5, 5], level=0.05)
    CurveReport(results={"removed": result}).write(root / "reports/curves.json")
    claims = ClaimReport(study="removed", scale=None, dataset="", environment="", fingerprint="", date="", results=[])
    claims.write(root / "reports/claims.json")
    (root / "reports/picture.png").write_bytes(b"removed")
    found = artifacts.read(root, load(root / "params.yaml"))
    built = summary.build(found)
    assert "removed" not in built.model_dump_json()
    assert set(found.details) < set(found.parity.pairs) == set(pairs())
    assert found.picture is found.claims is None


@pytest.mark.parametrize("outcome", ["different", "cannot judge", "bitwise"])
def test_a_verdict_that_is_false_is_told_from_none(built: Summary, outcome: Any) -> None:
    run = next(run for run in built.configurations.values() if run.status.status == "trained")
    judged = run.model_copy(update={"verdict": Verdict(left="a", right="b", verdict=outcome, margin=16)})
    assert words.outcome(judged) == outcome
    assert words.outcome(run.model_copy(update={"verdict": None})) == "not compared"
