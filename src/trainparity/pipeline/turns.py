"""Which of the configurations that have to train it is: `[2/5]`, counted over one run of the pipeline."""

from collections.abc import Sequence
from pathlib import Path

from trainparity.records.base import Record, RecordError

_TURNS = Path(".trainparity/turns.json")
"""Written by `probe`, which every run of the pipeline begins with."""


class Turns(Record):
    """The configurations of one run of the pipeline."""

    expected: list[str]
    """Those whose stage will train."""
    begun: list[str]
    """Those whose stage has begun."""


def expect(names: Sequence[str]) -> None:
    """Begin to count: these configurations will train."""
    Turns(expected=list(names), begun=[]).write(_TURNS)


def take(name: str) -> str:
    """Count a configuration and return its turn, `[2/5]`; empty where it was not expected, or is alone."""
    try:
        turns = Turns.read(_TURNS)
    except RecordError:  # the stage runs by itself
        return ""
    if name in turns.begun or name not in turns.expected:
        return ""
    begun = [*turns.begun, name]
    turns.model_copy(update={"begun": begun}).write(_TURNS)
    return f"[{len(begun)}/{len(turns.expected)}]" if len(turns.expected) > 1 else ""
