"""What a training prints while it runs."""

import os

import pytest

from trainparity.training import progress


def test_a_reader_that_leaves_does_not_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    stderr = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stderr", stderr)
    with progress.TrainingProgress("a", 3, main=True) as shown:
        for _ in range(3):
            shown.step(1.0)
    with pytest.raises(BrokenPipeError):  # what it still holds
        stderr.close()
