"""How far a run of the whole pipeline is, and how long it will take yet: `stage 3 of 9: train ddp; about 2 min left`.

What a stage took the last time is kept beside the checkpoints and not in its outputs, which stay equal bytes.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat

from trainparity.records.base import Record, RecordError

WHOLE = "TRAINPARITY_WHOLE_PIPELINE"
"""Set for the stages of `trainparity repro`: of a part of the pipeline nobody knows beforehand how many will run."""

_SCHEDULE = Path(".trainparity/schedule.json")
_SECONDS = Path(".trainparity/seconds.json")


class Schedule(Record):
    """The stages of one run of the pipeline, by the names of their plans."""

    expected: list[str]
    """Those that will run, after `probe`, which writes this."""
    begun: list[str]
    """Those that have begun."""


class Seconds(Record):
    """What stages took."""

    last: dict[str, Annotated[FiniteFloat, Field(ge=0)]]
    """Seconds of each stage's last run, by the name of its plan."""


def expect(stages: Sequence[str]) -> None:
    """Begin to count: these stages will run."""
    Schedule(expected=list(stages), begun=[]).write(_SCHEDULE)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say which stage begins and how long the rest may take, and keep what the stage took."""
    if WHOLE in os.environ and (line := _begin(name)):
        print(line, file=sys.stderr, flush=True)
    started = time.monotonic()
    yield
    with suppress(OSError):  # as on a full disk: the stage has done its work
        Seconds(last=_last() | {name: round(time.monotonic() - started, 1)}).write(_SECONDS)


def seconds(stages: Sequence[str]) -> float | None:
    """Return how long stages will take, by what they took before; null where one never ran here.

    A configuration that never ran takes about as long as the others.
    """
    known = _last()
    trained = [last for name, last in known.items() if name.startswith("train/")]
    typical = statistics.median(trained) if trained else None
    found = [known.get(name, typical if name.startswith("train/") else None) for name in stages]
    return None if None in found else round(sum(filter(None, found)), 1)


def duration(seconds: float) -> str:
    """Write a time as people say it: `12 s`, `3 min`, `1 h 10 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _begin(name: str) -> str:
    """Count a stage; return the line that says so, empty of one that was not expected."""
    try:
        schedule = Schedule.read(_SCHEDULE)
    except RecordError:  # before the first `probe`
        return ""
    if name not in schedule.expected or name in schedule.begun:
        return ""
    begun = [*schedule.begun, name]
    schedule.model_copy(update={"begun": begun}).write(_SCHEDULE)
    rest = seconds([name, *(one for one in schedule.expected if one not in begun)])
    text = f"stage {len(begun)} of {len(schedule.expected)}: {name.replace('/', ' ')}"
    return text if rest is None else f"{text}; about {duration(rest)} left"


def _last() -> dict[str, float]:
    try:
        return Seconds.read(_SECONDS).last
    except RecordError:  # nothing has run here
        return {}
