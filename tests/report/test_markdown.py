"""What others wrote neither makes markup nor steers the terminal that shows a summary."""

from trainparity.records.later_steps import LaterSteps
from trainparity.records.verdict import Verdict
from trainparity.report import markdown


def test_text_from_a_run_is_shown_as_it_is() -> None:
    written = markdown.verdict(
        Verdict(left="a\x1b[2J|<b>", right="\u202eb\nc", verdict="different", margin=16.0, cause="unknown")
    )
    assert "a\N{REPLACEMENT CHARACTER}\\[2J\\|\\<b\\> / \N{REPLACEMENT CHARACTER}b c" in written
    assert "\x1b" not in written and "\u202e" not in written


def test_what_can_say_more_is_told_of_runs_that_were_not_judged() -> None:
    written = markdown.verdict(
        Verdict(left="a", right="b", verdict="cannot judge", reason="too wide", margin=16.0, advice="ask float64")
    )
    assert "too wide" in written and "to know more: ask float64" in written


def test_of_the_same_training_the_steps_that_were_not_compared_are_told() -> None:
    whole = Verdict(left="a", right="b", verdict="equivalent", margin=16.0, steps_compared=8, steps_made=8)
    assert "steps" not in markdown.verdict(whole)
    later = [LaterSteps(first=8, last=23, judged_by="nothing", because="gone")]
    written = markdown.verdict(whole.model_copy(update={"steps_made": 24, "later_steps": later}))
    assert (
        "- **a / b**: equivalent over 8 of the 24 steps that were made\n  - NOT compared: steps 8 to 23: gone"
        in written
    )
