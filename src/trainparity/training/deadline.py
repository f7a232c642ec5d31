"""Ends a rank that makes no step: without a deadline, a hang lasts for ever and blocks all that waits for it."""

import faulthandler
import threading
import time
from pathlib import Path
from typing import Self

_POLL_S = 0.5
_FIRST_S = {False: 600.0, True: 1800.0}
"""Allowed until a phase's first step, by whether the run is compiled."""
_LEAST_S = 300.0
"""Allowed between later steps at least: an evaluation or a large checkpoint may lie between."""
_TIMES_SLOWEST = 30


class StepDeadline:
    """Writes the stacks of all threads to a file and ends this process when no step has ended in time.

    `faulthandler`'s own thread does it, which needs no GIL. `step` only counts; a thread rearms the timer.
    (https://docs.python.org/3/library/faulthandler.html#faulthandler.dump_traceback_later)
    """

    def __init__(self, stacks: Path, seconds: float | None, *, compiled: bool, loader_s: float = 0.0) -> None:
        """Start with a phase's first step.

        Args:
            stacks: Where to write.
            seconds: The limit for all steps, if given.
            compiled: Whether first steps compile.
            loader_s: How long a batch may take to come.
        """
        self._file = stacks.open("w", encoding="utf-8")
        self._seconds, self._first_s = seconds, _FIRST_S[compiled] + loader_s
        self._least_s = _LEAST_S + loader_s
        self._steps, self._phases, self._ended = 0, 0, threading.Event()
        self._rearm(None)
        threading.Thread(target=self._watch, name="trainparity-deadline", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End with the run."""
        self.end()

    def end(self) -> None:
        """Leave a process that ends alone: one that fails as a peer hung is no part of the hang."""
        self._ended.set()
        faulthandler.cancel_dump_traceback_later()

    def step(self) -> None:
        """Count one step."""
        self._steps += 1

    def phase(self) -> None:
        """Allow for a first step again."""
        self._phases += 1

    def _rearm(self, slowest_s: float | None) -> None:
        limit = self._first_s if slowest_s is None else max(self._least_s, _TIMES_SLOWEST * slowest_s)
        late_s = 2 * _POLL_S  # with which a step is noticed
        faulthandler.dump_traceback_later((self._seconds or limit) + late_s, exit=True, file=self._file)

    def _watch(self) -> None:
        steps, phases, since, slowest_s = 0, 0, time.monotonic(), None
        while not self._ended.wait(_POLL_S):
            now = time.monotonic()
            if self._phases > phases:
                steps, phases, since, slowest_s = self._steps, self._phases, now, None
                self._rearm(None)
            elif self._steps > steps:
                slowest_s = max(slowest_s or 0, (now - since) / (self._steps - steps))
                steps, since = self._steps, now
                self._rearm(slowest_s)
