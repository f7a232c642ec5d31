import io

import pytest
from rich.console import Console

from tests.support.report_tree import known_answer
from trainparity.records.numbers import number
from trainparity.report.console import show
from trainparity.report.format import moment, rate
from trainparity.report.schema import Summary


def printed(summary: Summary, width: int, colour: bool = False) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=colour, color_system="standard" if colour else None)
    show(summary, console)
    return text.getvalue()


@pytest.mark.parametrize("width", [100, 160])
def test_every_run_is_one_unwrapped_row(built: Summary, width: int) -> None:
    lines = printed(built, width).splitlines()
    assert max(len(line) for line in lines) <= width
    for words in (
        ["reference-fp32", "cpu", "reference", "–", "40.3", "1,587", "1×", "612", "–"],
        ["cpu", "cpu", "bitwise", "0", "40.5", "1,579", "0.99×", "(0.95–1.03)", "612", "–"],
        ["mps", "cpu", "skipped", "–", "–", "–", "–", "–", "–"],
        ["dp", "cpu", "equivalent", "0.900", "70.6", "907", "emulated", "612", "–"],
        ["compiled", "cpu", "equivalent", "0.900", "25.2", "2,539", "1.59×", "(1.53–1.65)", "612", "21.4"],
        ["lr-doubled", "cpu", "different", "200,000", "12.6", "5,078", "withheld", "612", "–"],
        ["broken", "cpu", "failed", "–", "–", "–", "–", "–", "–"],
    ):
        assert words in [line.split() for line in lines]


def test_reasons_remedies_and_dates_stand_below(built: Summary) -> None:
    text = printed(built, 200)
    for expected in (
        "mps: skipped: no Apple GPU here",
        "remedy: run it on a Mac",
        "broken: failed: RuntimeError: out of memory [rank 0]",
        "trainparity train --again broken",
        "compiled: graph breaks: print in model.py:12\n",
        "gradaccum: loader failed: the workers of 1 of 1 ranks; it trained on without them\n",
        "ddp / gradaccum: equivalent, distance / floor 0.900",
        "reference / lr-doubled: different: first beyond the floor at step 0 in head.weight",
        "article B's published weights (B1): reproduced by ddp and gradaccum to 4 digits, "
        "largest difference between them 0\n",
        f"fingerprint {built.fingerprint}",
        "measured 2026-03-01 12:30 to 2026-03-02 08:00 UTC",
    ):
        assert expected in text


def test_a_known_answer_that_was_missed_is_said_aloud(built: Summary) -> None:
    answer = known_answer(measured={"ddp": [1.0] * 8}, reproduced=False)
    text = printed(built.model_copy(update={"known_answer": answer}), 200)
    assert "NOT reproduced to 4 digits: ddp is 0.081 off" in text


def test_a_pair_with_an_emulated_run_is_not_green(built: Summary) -> None:
    pair = built.pairs["ddp-gradaccum"].model_copy(update={"right": "dp"})
    text = printed(built.model_copy(update={"pairs": {"ddp-dp": pair}}), 160, colour=True)
    assert "\x1b[33mddp / dp: equivalent" in text


def test_green_is_for_what_was_run_and_proved(built: Summary) -> None:
    green = [line for line in printed(built, 160, colour=True).splitlines() if "\x1b[32m" in line or "1;32m" in line]
    assert len(green) == 5  # cpu, ddp, gradaccum, compiled, and the pair ddp / gradaccum
    assert not any(word in line for line in green for word in ("emulated", "skipped", "failed", "different"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (1e300, "∞"),
        (1.8e-7, "1.8e-7"),
        (0.0123, "0.012"),
        (0.9996, "1.00"),
        (9.996, "10.0"),
        (99.96, "100"),
        (12345.6, "12,346"),
        (16.0, "16"),
        (2.5e9, "2.5e9"),
        (-0.25, "-0.250"),
    ],
)
def test_numbers_are_written_for_people(value: float | None, text: str) -> None:
    assert number(value) == text


def test_rates_and_moments() -> None:
    assert rate(7.65e10) == "76.5 GFLOP/s"
    assert rate(1.2e15) == "1.20 PFLOP/s"
    assert rate(None) == "–"
    assert moment("2026-03-01T12:30:05+00:00") == "2026-03-01 12:30"


def test_the_counterpart_is_shown_beside_the_table_or_why_there_is_none(built: Summary) -> None:
    def shown(**changes: object) -> str:
        pair = built.pairs["dp"].model_copy(update={"right": "counterpart", **changes})
        return printed(built.model_copy(update={"pairs": {"host-container": pair}}), 160)

    assert "reference / counterpart: equivalent, distance / floor 0.900" in shown()
    skipped = shown(verdict="skipped", reason="no engine", distance_over_floor=None)
    assert "host-container: skipped: no engine" in skipped
    assert "reference / counterpart" not in skipped
