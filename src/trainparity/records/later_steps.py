"""The steps that two runs made after the last one that was compared, and what judges them."""

from collections.abc import Sequence
from typing import Literal

from trainparity.records.base import Record

JudgedBy = Literal["weights at the end", "nothing"]


class LaterSteps(Record):
    """Steps that were made after the last one that was compared."""

    first: int
    """The first of them, from 0."""
    last: int | None
    """The last of them; null where the recording ended before the training did: how many there are is not known."""
    judged_by: JudgedBy
    """What can show a fault in them: the weights that the runs end with, beyond their noise floor, or nothing."""
    because: str | None = None
    """Why nothing does, or why the weights at the end show less; null where no more is to be said."""
    model: str | None = None
    """Of runs that train several models: whose steps they are."""

    def sentence(self, *, bitwise: bool) -> str:
        """Say of runs that are the same training what judges these steps.

        Args:
            bitwise: Whether the weights at the end have the same bits: then nothing lies within their noise floor.
        """
        if self.judged_by == "nothing":
            said, because = f"NOT compared: {self._which}", self.because
        else:
            said = f"compared by the weights at the end alone: {self._which}"
            because = self.because or (
                None if bitwise else "a fault within the noise floor of these weights is not seen"
            )
        return f"{said}: {because}" if because else said

    @property
    def _which(self) -> str:
        of = f" of the model {self.model}" if self.model else ""
        if self.last is None:
            return f"the steps from {self.first} on{of}"
        return f"step {self.first}{of}" if self.first == self.last else f"steps {self.first} to {self.last}{of}"


def sentences(later: Sequence[LaterSteps], *, bitwise: bool) -> list[str]:
    """Return what is said of the later steps of runs that are the same training, and last how they are compared."""
    said = [one.sentence(bitwise=bitwise) for one in later]
    if any(one.last is not None for one in later):
        said.append("to compare these steps too, record every step (`interval=1`, or `trainparity run --interval 1`)")
    return said
