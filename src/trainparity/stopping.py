"""Signals that end a command's work by an exception, so that it tidies up."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from trainparity.errors import StoppedBySignal

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: its user's, a service's, and that of a terminal that is closed."""

_AGAIN_S = 0.1
_LONGEST_WAIT_S = 20.0

_STARTS = (("subprocess.py", "_execute_child"), ("multiprocessing/process.py", "start"))
"""Functions that start a process: ends of their files, and names."""


def handle_stops(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Have a handler take the signals that end a command, but those that `nohup` ignores; return what it replaces."""
    heeded = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


@contextmanager
def stops_handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have a handler take the signals that end a command meanwhile."""
    before = handle_stops(handler)
    try:
        yield
    finally:
        for number, replaced in before.items():
            signal.signal(number, replaced)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Have the signals that end a command do so by an exception where nobody else handles them.

    Raises:
        KeyboardInterrupt: SIGINT came.
        StoppedBySignal: another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    taken = {number: handler for number, handler in own.items() if signal.getsignal(number) is handler}
    stop = _Stop()
    try:
        for number in taken:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        stop.raise_what_waits()


class _Stop:
    """A signal's handler that raises, but neither within an import nor while a process is started.

    torch's modules catch everything here and there: of 60 signals, at any time of a stage's start, two were lost to a
    bare `except` in what it imported. And a process whose starter raised runs without anybody who knows of it.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._again: threading.Timer | None = None
        self._number = 0

    def raise_what_waits(self) -> None:
        """Raise for a signal that is yet to be sent again."""
        if self._again and self._again.is_alive():
            self._again.cancel()
            self._raise()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise, or send the signal again in a moment."""
        if self._again:
            self._again.cancel()
        self._number = number
        self._first = self._first or time.monotonic()
        if _imports_or_starts(frame) and time.monotonic() - self._first < _LONGEST_WAIT_S:
            self._again = threading.Timer(_AGAIN_S, os.kill, [os.getpid(), number])
            self._again.daemon = True
            with suppress(RuntimeError):  # where no more threads are allowed
                self._again.start()
                return
        self._raise()

    def _raise(self) -> NoReturn:
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        raise StoppedBySignal(self._number, then="")


def _imports_or_starts(frame: FrameType | None) -> bool:
    while frame:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if file == "<frozen importlib._bootstrap>" or any(file.endswith(of) and function == by for of, by in _STARTS):
            return True
        frame = frame.f_back
    return False
