"""What others wrote neither makes markup nor steers the terminal that shows a summary."""

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
