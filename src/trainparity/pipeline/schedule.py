"""How far a run of the whole pipeline is, and how long it will take yet: `stage 3 of 9: train ddp; about 2 min left`.

What a stage took the last time is kept beside the checkpoints and not in its outputs, which stay equal bytes.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

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

    last: dict[str, float]
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
    Seconds(last=_last() | {name: round(time.monotonic() - started, 1)}).write(_SECONDS)


class Estimate(NamedTuple):
    """How long stages will take."""

    seconds: float | None
    """By what they took before; null where that is not known of any."""
    complete: bool
    """Whether it is known of each."""

    def text(self, end: str) -> str:
        """Write it behind a semicolon, some words at its end: `; about 3 min left`; empty where nothing is known."""
        if self.seconds is None:
            return ""
        return f"; {'about' if self.complete else 'more than'} {_duration(self.seconds)}{end}"


def estimate(stages: Sequence[str]) -> Estimate:
    """Say how long stages will take; a configuration that never ran takes about as long as the others."""
    known = _last()
    trained = [seconds for name, seconds in known.items() if name.startswith("train/")]
    typical = {name: statistics.mean(trained) for name in stages if name.startswith("train/") and trained}
    found = [one for name in stages if (one := known.get(name, typical.get(name))) is not None]
    return Estimate(round(sum(found), 1) if found else None, len(found) == len(stages))


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
    rest = estimate([name, *(one for one in schedule.expected if one not in begun)])
    return f"stage {len(begun)} of {len(schedule.expected)}: {name.replace('/', ' ')}{rest.text(' left')}"


def _last() -> dict[str, float]:
    try:
        return Seconds.read(_SECONDS).last
    except RecordError:  # nothing has run here
        return {}


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
