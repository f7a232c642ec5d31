"""What `trainparity compare` and `trainparity check` print."""

import io

from rich.console import Console

from tests.support.report_tree import pair
from trainparity.records.check import CheckReport
from trainparity.records.curves import CurveResult
from trainparity.records.later_steps import LaterSteps
from trainparity.records.verdict import Verdict
from trainparity.report import answer, check


def printed(shown: Verdict | CheckReport) -> str:
    text = io.StringIO()
    console = Console(file=text, width=160, highlight=False, soft_wrap=True)
    if isinstance(shown, Verdict):
        answer.show(shown, console)
    else:
        check.show(shown, console)
    return text.getvalue()


def different() -> Verdict:
    return pair(
        "ddp",
        "different",
        reason="beyond 16 x the noise floor from step 0 on",
        cause="buffers-only",
        explanation="the buffers differ",
        advice="use [SyncBatchNorm]",
        weights="equivalent",
        confirmation="in float64 it is not rounding",
        evidence={"gradient_distance": 1.2345678e-7, "options": ["lr", "momentum"]},
        steps_compared=40,
    )


CAUSE = """\
  cause: buffers-only: the buffers differ
  to change: use [SyncBatchNorm]
  gradients, updates and weights: equivalent
  second opinion: in float64 it is not rounding
    gradient distance: 1.23457e-7
    options: lr, momentum
"""


def test_a_difference_is_printed_with_its_cause_and_evidence() -> None:
    text = printed(different())
    assert text.startswith("reference / ddp: different\n  at most 200,000 x the noise floor (up to 16 x is rounding), ")
    assert text.endswith("  beyond 16 x the noise floor from step 0 on\n" + CAUSE)


def test_an_equivalent_says_what_would_have_been_seen_and_whether_the_floor_was_measured() -> None:
    text = printed(pair("ddp", resolution=3.2e-6, steps_compared=40))
    assert "  a relative error of the gradient beyond 3.2e-6 would have been `different`\n" in text
    assert "uncalibrated" not in text
    assert "uncalibrated" in printed(pair("ddp", calibrated=False))
    assert "uncalibrated" not in printed(pair("ddp", calibrated=False, verdict="bitwise"))


def test_of_an_equivalent_beyond_where_right_runs_lie_it_says_what_can_tell() -> None:
    far, near = pair("ddp", distance_over_floor=7.3), pair("ddp", distance_over_floor=4.5)
    assert "beyond 3.50 times" in printed(pair("ddp", distance_over_floor=4.5, margin=5.0))  # a coarse format's
    assert "right runs seldom lie beyond 5 times: record more twins" in printed(far)
    assert "right runs" not in printed(near) + printed(far.model_copy(update={"confirmation": "the same there"}))
    assert "right runs" not in printed(far.model_copy(update={"verdict": "different"}))


def test_it_says_how_many_of_the_steps_were_compared_and_what_judges_the_later_ones() -> None:
    assert "is rounding), over 8 traced steps\n" in printed(pair("ddp", steps_compared=8))
    whole = printed(pair("ddp", steps_compared=24, steps_made=24))
    assert "is rounding), over all 24 steps that were made\n" in whole and "to compare" not in whole
    later = LaterSteps(first=8, last=23, judged_by="weights at the end")
    few = {"steps_compared": 8, "steps_made": 24, "later_steps": [later]}
    said = f"over 8 of the 24 steps that were made\n  {later.sentence(bitwise=False)}\n  to compare these steps too"
    assert said in printed(pair("ddp", **few))
    assert later.sentence(bitwise=True) in printed(pair("ddp", "bitwise", **few))
    other = printed(pair("ddp", "different", **few))
    assert "over 8 of the 24 steps that were made" in other and "weights at the end" not in other


def test_what_was_not_judged_is_its_reason_alone() -> None:
    unread = Verdict(left="a", right="b", verdict="cannot judge", reason="b: no such folder", margin=16)
    assert printed(unread) == "a / b: cannot judge\n  b: no such folder\n"
    advised = printed(unread.model_copy(update={"advice": "ask float64"}))
    assert advised == "a / b: cannot judge\n  b: no such folder\n  to know more: ask float64\n"


def test_check_prints_a_row_and_the_reasons_of_each_candidate() -> None:
    curves = CurveResult(verdict="failed", reason="bf16-2 failed: killed", runs=[5, 5], level=0.05)
    results = {
        "ddp-2": different(),
        "amp-bf16": pair("amp-bf16", "bitwise", curves=curves),
        "tf32": pair("tf32", "bitwise", vacuous=True, curves=curves.model_copy(update={"verdict": "consistent"})),
        "amp-fp16": pair("amp-fp16", "bitwise", vacuous=True, reason="it is its own reference"),
        "compiled": pair("compiled", confirmation="in float64 the largest distance is 1e-16: it was rounding"),
        "cuda": pair("cuda", "skipped", reason="no GPU"),
    }
    report = CheckReport(workload="mlp", margin=16, results=results)
    text = printed(report)
    rows = [line.split() for line in text.splitlines()]
    assert ["amp-bf16", "bitwise", "0", "–", "failed"] in rows
    # Of another precision's own reference the learning curves alone say anything.
    assert ["tf32", "consistent", "–", "–", "consistent"] in rows
    assert ["amp-fp16", "cannot", "judge", "–", "–", "–"] in rows and "amp-fp16: cannot judge: it is its own" in text
    assert [results[name].exit_code for name in ("tf32", "amp-fp16")] == [0, 2]
    assert "\nddp-2: different: beyond 16 x the noise floor from step 0 on\n" + CAUSE in text
    assert "\namp-bf16: bf16-2 failed: killed\n" in text
    assert "\ncompiled: equivalent: in float64 the largest distance is 1e-16: it was rounding\n" in text
    assert "\ncuda: skipped: no GPU\n" in text


def test_what_the_runs_did_not_compute_alike_with_is_shown() -> None:
    facts = ["threads: 1 in a, 2 in b"]
    unknown = printed(pair("ddp", verdict="different", cause="unknown", environment=facts))
    assert "look here first: the runs did not compute alike with\n    threads: 1 in a, 2 in b" in unknown
    proved = printed(pair("ddp", verdict="different", cause="samples", environment=facts))
    assert "look here first" not in proved and "threads: 1 in a" in proved
    assert "compute alike" not in printed(pair("ddp"))


def test_an_equivalent_beyond_the_margin_says_what_confirmed_it() -> None:
    confirmed = "in float64 the largest distance is 3e-9, after 0.2"
    verdict = Verdict(
        left="a", right="b", verdict="equivalent", margin=16, distance_over_floor=5.7e6, confirmation=confirmed
    )
    text = printed(verdict)
    assert f"second opinion: {confirmed}\n" in text
    assert "at most 5,700,000 x the noise floor (up to 16 x is rounding; beyond it, a run in float64 decided)" in text
    table = printed(CheckReport(workload="mlp", margin=16, results={"compiled": verdict, "ddp": pair("ddp")}))
    [row] = [line for line in table.splitlines() if line.startswith(" compiled")]
    assert "equivalent  5,700,000 (float64: rounding)" in row and table.count("float64:") == 1
