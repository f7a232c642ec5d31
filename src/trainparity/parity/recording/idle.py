"""What is left of a recorded model whose optimizer has made no step, though gradients reached it."""

from pathlib import Path

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


def without_steps(folder: Path) -> str | None:
    """Say what is wrong with a run of which this alone is there; None where there is nothing of the kind.

    Raises:
        RecordError: what is there is damaged.
    """
    if not (folder / IDLE).exists():
        return None
    optimizer = Idle.read(folder / IDLE).optimizer
    return (
        f"gradients reached the model, and no step of {optimizer}, which was to be recorded, was made: record the "
        "optimizer whose step() the loop calls; of one that wraps another, as SAM does with `first_step` and "
        "`second_step`, the inner one (`base_optimizer`)"
    )
