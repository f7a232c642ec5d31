import pytest

from trainparity.records.later_steps import LaterSteps
from trainparity.records.verdict import Outcome, Verdict, Worst
from trainparity.second_opinion import in_float64, judged_again, rounding, settled, unhidden


def judged(distance: float, floor: float = 1e-9) -> Verdict:
    worst = Worst(kind="gradient", distance_over_floor=100.0, distance=distance, floor=floor, step=0, tensor="weight")
    return Verdict(left="a", right="b", verdict="different", margin=16.0, worst=[worst])


@pytest.mark.parametrize(("after", "rounding"), [(0.02, False), (1e-5, False), (1e-9, True), (0.0, True)])
def test_what_float64_leaves_is_no_rounding(after: float, rounding: bool) -> None:
    vanishes, text = in_float64(judged(0.02), judged(after))
    assert vanishes == rounding
    assert text.startswith("in float64 the largest distance is ")


def test_without_an_answer_nothing_is_rounding() -> None:
    again = Verdict(left="a", right="b", verdict="cannot judge", reason="no trace", margin=16.0)
    assert in_float64(judged(0.02), again) == (False, "float64 gave no answer: no trace")


HIDDEN = Verdict(left="a", right="b", verdict="cannot judge", reason="the floor", margin=6.0, hidden_by_floor=True)


@pytest.mark.parametrize(("again", "settles"), [("different", "different"), ("bitwise", "equivalent")])
def test_float64_settles_what_the_floor_hides(again: Outcome, settles: str) -> None:
    there = Verdict(left="a64", right="b64", verdict=again, margin=16.0)
    found = settled(HIDDEN, there)
    assert (found.left, found.right, found.verdict) == ("a", "b", settles)
    assert found.confirmation == "judged in float64, as the floor" and not found.hidden_by_floor


def test_what_float64_cannot_settle_stays_hidden() -> None:
    found = settled(HIDDEN, Verdict(left="a64", right="b64", verdict="failed", reason="no float64", margin=16.0))
    assert (found.verdict, found.confirmation) == ("cannot judge", "float64 gave no answer: no float64")


def test_where_float64_acquits_runs_their_later_steps_are_judged_by_what_judges_them_there() -> None:
    """Of a difference nothing else is looked at."""
    before, again = (
        judged(distance).model_copy(update={"later_steps": [LaterSteps(first=8, last=9, judged_by=by)]})
        for distance, by in ((0.02, "nothing"), (1e-9, "weights at the end"))
    )
    found = judged_again(before, again.model_copy(update={"verdict": "equivalent"}))
    assert (found.verdict, found.later_steps) == ("equivalent", again.later_steps)


def test_rounding_has_no_cause() -> None:
    before = judged(0.02).model_copy(
        update={"cause": "update", "advice": "change it", "confirmation": "by one process"}
    )
    found = rounding(before, "in float64 it vanishes")
    assert (found.verdict, found.weights, found.cause, found.advice) == ("equivalent", "equivalent", None, None)
    assert found.confirmation == "by one process; in float64 it vanishes: it was rounding"


@pytest.mark.parametrize(
    ("distance", "again", "said"),
    [
        (3e-3, "different", "the rounding of the runs' own format hid it"),
        (1e-14, "different", "it was rounding"),
        (1e-14, "equivalent", "it was rounding"),
        (3e-3, "equivalent", "the same training there too"),
    ],
)
def test_what_a_coarse_format_hides_is_no_rounding(distance: float, again: Outcome, said: str) -> None:
    before = judged(0.4).model_copy(update={"verdict": "equivalent"})
    names = {"left": "a64", "right": "b64", "explanation": "b64 decays", "reason": "a64 and b64 part"}
    there = judged(distance).model_copy(update={"verdict": again, **names})
    found = unhidden(before, there)
    assert str(found.confirmation).endswith(said)
    assert (found.left, found.right) == ("a", "b")
    assert (found.verdict == "different") == ("hid" in said)
    if "hid" in said:
        assert (found.explanation, found.reason) == ("b decays", "a and b part")


def test_without_an_answer_in_float64_runs_stay_equivalent() -> None:
    before = judged(0.4).model_copy(update={"verdict": "equivalent"})
    found = unhidden(before, Verdict(left="a", right="b", verdict="cannot judge", reason="no twins", margin=16.0))
    assert (found.verdict, found.confirmation) == ("equivalent", "float64 gave no answer: no twins")


def named(cause: str, step: int, floor: float = 1e-7) -> Verdict:
    found = {"cause": cause, "step": step, "explanation": f"{cause} in b", "link": "loss"}
    return judged(0.02, floor).model_copy(update=found)


@pytest.mark.parametrize(
    ("before", "again", "cause"),
    [
        (named("backward", 3), named("loss-normalisation", 4), "loss-normalisation"),  # rounding was seen first
        (named("unknown", 13, floor=0.01), named("update", 0), "update"),
        (named("unknown", 6), named("forward", 0), "unknown"),  # fp32 rounds a constant to what the other run has
        (named("unknown", 6), named("update", 6), "update"),
        (named("backward", 3), named("loss-or-targets", 3), "backward"),
        (named("backward", 3), named("unknown", 4), "backward"),
        (named("backward", 4), named("loss-normalisation", 3), "backward"),  # without twins its floor may be too low
    ],
)
def test_float64_names_what_rounding_hid(before: Verdict, again: Verdict, cause: str) -> None:
    there = again.model_copy(update={"left": "a64", "right": "b64", "explanation": f"{again.cause} in b64"})
    found = judged_again(before, there)
    assert (found.verdict, found.cause, found.explanation) == ("different", cause, f"{cause} in b")
    assert found.step == (before if cause == before.cause else again).step
    assert str(found.confirmation).endswith("has its cause there") == (cause != before.cause)


def test_a_coarse_format_that_float64_takes_away_keeps_its_cause() -> None:
    before, again = named("precision", 0), named("loss-normalisation", 4)
    assert judged_again(before, again, takes_more=True).cause == "precision"
    assert judged_again(named("unknown", 0), again, takes_more=True).cause == "loss-normalisation"
