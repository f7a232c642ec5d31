"""What the operators of one optimizer step return, in the order in which they run."""

from trainparity.records.base import INFINITE, Record
from trainparity.records.numbers import number


class OperatorCall(Record):
    """One operator that ran, and a small image of what it returned."""

    operator: str
    """Its name, such as `aten.addmm`."""
    place: str
    """The line that it ran for, of the script or of a library but torch: `model.py:52`, and in backward its node."""
    shape: list[int]
    """Of the first tensor that it returned."""
    sketch: list[float]
    """A projection of that tensor; empty where it is not finite."""


class OperatorLog(Record):
    """The operators of one optimizer step on the first rank."""

    step: int
    """Optimizer step, from 0."""
    calls: list[OperatorCall]
    """In the order in which they ran; views are left out."""


class FirstOperator(Record):
    """The first operator that returns something else in the other run."""

    operator: str
    """Its name, such as `aten.addmm`."""
    left: str
    """Where it runs in the reference."""
    right: str
    """Where it runs in the other run."""
    step: int
    """Optimizer step, from 0."""
    distance: float
    """Relative L2 distance of what it returns in the two runs; 1e300: it is finite in one of them only."""
    floor: float
    """Largest such distance of a twin, up to this operator."""
    only_left: list[str]
    """Operators that ran just before it in the reference only, with their places."""
    only_right: list[str]
    """The same of the other run."""

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        place = self.left if self.left == self.right else f"{self.left} / {self.right}"
        others = [
            f"; before it, only in {name}: {', '.join(calls)}"
            for name, calls in (("the reference", self.only_left), ("the other run", self.only_right))
            if calls
        ]
        apart = "finite in one run only" if self.distance >= INFINITE else f"{number(self.distance)} apart"
        floor = f"floor {number(self.floor)}"
        return f"{self.operator} at {place} is the first beyond its floor: {apart}, {floor}{''.join(others)}"
