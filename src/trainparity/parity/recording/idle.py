"""What is left of a recorded model whose optimizer has made no step, though gradients reached it."""

from trainparity.records.base import Record

IDLE = "idle.json"
"""Where its trace would lie."""


class Idle(Record):
    """That it was recorded and made no step."""

    parameters: dict[str, list[int]]
    """Shapes by name, as in a trace's layout."""
    optimizer: str
    steps_of_others: int
    """Steps that other recorded optimizers of the process made meanwhile."""
