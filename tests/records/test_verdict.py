from typing import get_args

import pytest

from trainparity.records.check import CheckReport
from trainparity.records.curves import CurveResult
from trainparity.records.verdict import JUDGED, SAME_TRAINING, Outcome, ParityReport, Verdict

CODES = {"bitwise": 0, "equivalent": 0, "different": 1, "cannot judge": 2, "skipped": 2, "failed": 2}


def verdict(outcome: str, **facts: object) -> Verdict:
    return Verdict.model_validate({"left": "a", "right": "b", "verdict": outcome, "margin": 16, **facts})


def curves(outcome: str) -> CurveResult:
    return CurveResult.model_validate({"verdict": outcome, "runs": [5, 5], "level": 0.05})


def test_every_outcome_has_its_exit_code() -> None:
    assert {outcome: verdict(outcome).exit_code for outcome in get_args(Outcome)} == CODES
    assert {outcome for outcome, code in CODES.items() if code == 0} == set(SAME_TRAINING)
    assert {outcome for outcome, code in CODES.items() if code < 2} == set(JUDGED)


@pytest.mark.parametrize(
    ("outcome", "learned", "code"),
    [
        ("equivalent", "consistent", 0),
        ("equivalent", "drifted", 1),
        ("equivalent", "cannot judge", 2),
        ("equivalent", "failed", 2),
        ("different", "failed", 1),
        ("failed", "drifted", 1),
    ],
)
def test_learning_curves_count_beside_the_verdict(outcome: str, learned: str, code: int) -> None:
    assert verdict(outcome, curves=curves(learned)).exit_code == code


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["bitwise", "equivalent"], 0),
        (["bitwise", "failed"], 2),
        (["failed", "different", "bitwise"], 1),
    ],
)
def test_one_different_candidate_outweighs_those_that_could_not_be_judged(outcomes: list[str], code: int) -> None:
    results = {str(i): verdict(outcome) for i, outcome in enumerate(outcomes)}
    assert CheckReport(workload="w", margin=16, results=results).exit_code == code


def test_the_pair_with_a_runs_own_reference_is_found() -> None:
    pairs = {"one": verdict("bitwise", left="reference-bf16"), "two": verdict("different", left="reference")}
    report = ParityReport(margin=16, pairs=pairs)
    assert report.against("b", "reference", "reference-fp32") == pairs["two"]
    assert report.against("b", "reference-fp16") is report.against("c", "reference") is None
