"""A pytest plugin: the fixture `parity`, whose verdicts are properties of the JUnit report."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # torch is imported when a test uses the fixture
    from trainparity.records.verdict import Verdict
    from trainparity.testing import Training


class Parity:
    """Holds trainings against each other and notes the verdict in the test's report."""

    def __init__(self, folder: Path, properties: list[tuple[str, object]]) -> None:
        self._folder, self._properties = folder, properties
        self._count = 0

    def assert_same_training(
        self, reference: "Training", other: "Training", *, folder: str | Path | None = None, **options: Any
    ) -> "Verdict":
        """As `trainparity.testing.assert_same_training`; by default the runs stay in the test's temporary folder."""
        from trainparity.testing import NotSameTraining, assert_same_training

        self._count += 1
        try:
            kept = folder or self._folder / f"parity-{self._count}"
            verdict = assert_same_training(reference, other, folder=kept, **options)
        except NotSameTraining as error:
            self._note(error.verdict)
            raise
        self._note(verdict)
        return verdict

    def _note(self, verdict: "Verdict") -> None:
        for name in ("verdict", "cause", "distance_over_floor"):
            if (value := getattr(verdict, name)) is not None:
                self._properties.append((f"trainparity.{name}", value))


@pytest.fixture
def parity(tmp_path: Path, request: pytest.FixtureRequest) -> Parity:
    """Compare trainings: `parity.assert_same_training(reference, other)`."""
    # The fixture `record_property` does the same, and warns of the report's default format: an error under `-W error`.
    return Parity(tmp_path, request.node.user_properties)
