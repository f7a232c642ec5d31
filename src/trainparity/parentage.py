"""A process that ends with the one that started it, however that ended."""

import os
import signal
import threading
import time

FOLLOWS = "TRAINPARITY_FOLLOWS"
"""Environment variable of a stage that is to end with its parent, by whose number; DVC's variable says so, too."""

_POLL_S = 0.5


def end_with_parent() -> None:
    """From now on send SIGTERM to this process, within a second, when its parent has ended."""
    parent = os.getppid()
    # By a parent that has given this process a session of its own. What this process starts has another parent.
    named = os.environ.pop(FOLLOWS, None)
    # Else the parent is what takes orphans: it was killed while this one started.
    known = str(parent) == named if named else _is_in_our_session(parent)

    def watch() -> None:
        while known and os.getppid() == parent:
            time.sleep(_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="trainparity-parent", daemon=True).start()


def _is_in_our_session(process: int) -> bool:
    try:
        return os.getsid(process) == os.getsid(0)
    except ProcessLookupError:
        return False
