"""What other people wrote can't steer the terminal."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from trainparity.printable import printable
from trainparity.report.terminal import Terminal

HOSTILE = "layer\x1b[2J\x1b]0;title\x07\x9b31m\rend"


def test_control_characters_are_shown_and_line_ends_stay() -> None:
    assert printable("a\tb\nc\u00e9\U0001f600") == "a\tb\nc\u00e9\U0001f600"
    assert printable(HOSTILE) == "layer\ufffd[2J\ufffd]0;title\ufffd\ufffd31m\ufffdend"
    assert printable("\u05d0\u200f \u202egro.elpmaxe\u2069") == "\u05d0\u200f \ufffdgro.elpmaxe\ufffd"


@pytest.mark.parametrize("colour", [False, True])
def test_a_console_keeps_its_own_colours_only(colour: bool) -> None:
    console = Terminal(file=io.StringIO(), force_terminal=colour, color_system="standard" if colour else None, width=80)
    console.print(Text(HOSTILE, style="red"))
    table = Table("name")
    table.add_row(HOSTILE)
    console.print(table)
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[2J" not in written
    assert not {"\x07", "\x9b", "\r"} & set(written)
    assert ("\x1b[" in written) == colour


def test_a_terminal_of_no_columns_shows_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    written = io.StringIO()
    Terminal(file=written, soft_wrap=True).print("the answer")
    assert written.getvalue() == "the answer\n"
