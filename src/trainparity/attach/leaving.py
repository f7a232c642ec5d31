"""How a recorded script is made to end after its last step, whatever it catches."""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

_GRACE_S = 30.0
"""How long a stopped script may take to end by itself: its `finally` blocks and exit functions."""


def leave() -> NoReturn:
    """End the script with 0: by `SystemExit`, or at once where that would end a thread alone.

    Raises:
        SystemExit: For the script's own `finally` blocks; after 30 s the process ends without them.
    """
    if threading.current_thread() is not threading.main_thread():
        leave_now()
    threading.Thread(target=_leave_later, daemon=True).start()
    raise SystemExit(0)


def leave_now() -> NoReturn:
    """End this process, whatever its script catches."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the script has closed it, or set it to None
            stream.flush()
    os._exit(0)


def call_before_exit(function: Callable[[], None]) -> None:
    """Call a function also where a script ends with `os._exit`, which runs no exit function."""
    original = os._exit

    def leave(status: int) -> None:
        try:
            function()
        finally:
            original(status)

    os._exit = leave  # type: ignore[assignment]


def _leave_later() -> None:
    time.sleep(_GRACE_S)
    leave_now()
