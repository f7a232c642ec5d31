"""How a stage ends."""

import signal

import pytest

from trainparity.stage import exit_code


def test_an_interrupted_stage_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # of a background job it is ignored
    try:
        assert exit_code(lambda: signal.raise_signal(signal.SIGINT)) == 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "stopped by SIGINT\n"
