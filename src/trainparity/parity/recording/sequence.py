"""The order in which all optimizers that are recorded in this process make their steps."""


class Sequence:
    """Numbers steps."""

    made = 0
    """Steps numbered so far."""

    def next(self) -> int:
        """Return the number of the next step, from 0."""
        self.made += 1
        return self.made - 1


STEPS_OF_ALL = Sequence()
