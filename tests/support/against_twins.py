"""Two small trainings of this process, of which the first gives the noise floor, and what is said of them."""

from collections.abc import Callable
from pathlib import Path

from trainparity.parity.compare import compare_folders
from trainparity.records.verdict import Verdict

Training = Callable[[Path, int], None]
"""Trains, recorded into a folder, as the twin of a number; 0: none."""


def compared(reference: Training, test: Training, folder: Path) -> Verdict:
    """Compare a training with another that was recorded with two twins."""
    for twin in range(3):
        reference(folder / "reference", twin)
    test(folder / "test", 0)
    return compare_folders(folder / "reference", folder / "test")
