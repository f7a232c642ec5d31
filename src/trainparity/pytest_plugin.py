"""A pytest plugin: the fixture `parity`, whose verdicts are properties of the JUnit report."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # torch is imported when a test uses the fixture
    from trainparity.records.verdict import Verdict
    from trainparity.testing import Training


class Parity:
    """Holds trainings against each other and notes the verdict in the test's report."""

    def __init__(self, folder: Path, record_property: Callable[[str, object], None]) -> None:
        self._folder, self._record_property = folder, record_property
        self._count = 0

    def assert_same_training(self, reference: "Training", other: "Training", **options: Any) -> "Verdict":
        """As `trainparity.testing.assert_same_training`; the runs stay in the test's temporary folder."""
        from trainparity.testing import NotSameTraining, assert_same_training

        self._count += 1
        try:
            verdict = assert_same_training(reference, other, folder=self._folder / f"parity-{self._count}", **options)
        except NotSameTraining as error:
            self._note(error.verdict)
            raise
        self._note(verdict)
        return verdict

    def _note(self, verdict: "Verdict") -> None:
        for name in ("verdict", "cause", "distance_over_floor"):
            if (value := getattr(verdict, name)) is not None:
                self._record_property(f"trainparity.{name}", value)


@pytest.fixture
def parity(tmp_path: Path, record_property: Callable[[str, object], None]) -> Parity:
    """Compare trainings: `parity.assert_same_training(reference, other)`."""
    return Parity(tmp_path, record_property)
