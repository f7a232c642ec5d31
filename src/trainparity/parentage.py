"""A process that ends with the one that started it, however that ended."""

import os
import signal
import threading
import time
from contextlib import suppress

FOLLOWS = "TRAINPARITY_FOLLOWS"
"""Environment variable of a stage that is to end with its parent, by whose number; DVC's variable says so, too."""

_POLL_S = 0.5

_ENDING = threading.Event()


def is_ending() -> None:
    """Note that this process ends by itself: its parent's end is then no second signal, which would cut that short."""
    _ENDING.set()


def end_with_parent() -> None:
    """From now on send SIGTERM to this process, within a second, when its parent has ended."""
    parent = os.getppid()
    # By one that has given this process a session of its own: the parent, or what started that, as a wrapper of Python.
    # What this process starts follows this one.
    named = os.environ.pop(FOLLOWS, None)

    def alive() -> bool:
        return os.getppid() == parent and (not named or _runs(int(named)))

    # Else the parent is what takes orphans: it was killed while this one started.
    known = alive() if named else _is_in_our_session(parent)

    def watch() -> None:
        while known and alive():
            time.sleep(_POLL_S)
        if not _ENDING.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="trainparity-parent", daemon=True).start()


def _runs(process: int) -> bool:
    """Tell whether a process has not ended; one that nobody has waited for has, as far as psutil is there to say so."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        import psutil
    except ImportError:
        return True
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    return False


def _is_in_our_session(process: int) -> bool:
    try:
        return os.getsid(process) == os.getsid(0)
    except ProcessLookupError:
        return False
