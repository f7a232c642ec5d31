"""How a process ends whose work is done: also where a thread or a process that the user's code started goes on."""

import multiprocessing
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

GRACE_S = 10.0
"""How long what still runs may take to end."""


def leave(code: str | int | None) -> NoReturn:
    """End this process as `sys.exit` does, within a grace: for threads Python would wait for ever.

    Args:
        code: What `sys.exit` is told.
    """
    number = code if isinstance(code, int) else int(code is not None)
    timer = threading.Timer(GRACE_S, _end, [number])
    timer.daemon = True
    with suppress(RuntimeError):  # where no more threads are allowed; the code is to stay
        timer.start()
    sys.exit(code)


def _end(code: int) -> None:
    if threading.main_thread().is_alive():  # somebody caught the SystemExit: a test, a notebook
        return
    children = multiprocessing.active_children()
    for child in children:
        child.kill()
    threads = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    names = ", ".join([*threads, *(child.name for child in children)]) or "something"
    with suppress(OSError, ValueError):
        print(f"the work is done, {names} still runs after {GRACE_S:g} s: ended without it", file=sys.stderr)
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(code)
