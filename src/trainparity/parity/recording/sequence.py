"""The order in which all optimizers that are recorded in this process at a time make their steps."""


class Sequence:
    """Numbers steps."""

    made = 0
    """Steps numbered so far."""

    def begin(self) -> None:
        """Number from 0 again: no recorder is open."""
        self.made = 0

    def next(self) -> int:
        """Return the number of the next step, from 0."""
        self.made += 1
        return self.made - 1


STEPS_OF_ALL = Sequence()
