"""Worker processes forked from one that has imported torch already: many short runs then start at once.

Only for runs that are not timed. Linux alone: macOS's frameworks do not survive a fork.
(https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy

from trainparity.lingering import leave
from trainparity.training.spec import WORKER

_context: ForkServerContext | None = None
_server: Any = forkserver._forkserver
_MADE_UP = 255
_UNTIL_DEAD_S = 1.0
"""A killed process closes its pipes a moment before it counts as dead."""


@contextmanager
def warm_workers() -> Iterator[None]:
    """Have a process ready for as long as this lasts, from which `start_warm` forks."""
    global _context
    # A fork server that is there already is the caller's, with other modules in it.
    if _context is not None or sys.platform != "linux" or _server._forkserver_pid is not None:
        yield
        return
    _context = multiprocessing.get_context("forkserver")
    _context.set_forkserver_preload([WORKER, "torch._dynamo"])  # which the first optimizer imports
    get_temp_dir()  # of the server's socket: made now, it does not go with the temporary files of the first run
    try:
        yield
    finally:
        _context = None
        if _server._forkserver_pid is not None:
            os.kill(_server._forkserver_pid, signal.SIGTERM)  # else it would wait for all that was forked from it
            _server._stop()


def start_warm(module: str, argument: str, environment: Mapping[str, str]) -> ForkServerProcess | None:
    """Start `main` of one of our modules in a process of its own; None: there is nothing to fork from.

    Args:
        module: What `python -m` would be told.
        argument: The one command-line argument.
        environment: All of the process's variables.
    """
    if _context is None:
        return None
    process = _context.Process(target=_serve, args=(module, argument, dict(environment), str(Path.cwd())))
    with _without_main():
        try:
            process.start()
        except (ConnectionError, EOFError):  # it could not start, or could not fork
            return None
    return process


def is_lost(process: ForkServerProcess) -> bool:
    """Tell whether nobody knows if a process ended, and how, as what it was forked from was killed.

    Its exit code is 255 then, which multiprocessing makes up.
    """
    deadline = time.monotonic() + _UNTIL_DEAD_S
    while process.exitcode == _MADE_UP and _server._forkserver_pid is not None:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT  # multiprocessing itself is to take note of it
        if os.waitid(os.P_PID, _server._forkserver_pid, how):
            return True
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return False


def _serve(module: str, argument: str, environment: dict[str, str], folder: str) -> None:
    with suppress(OSError, TypeError):  # the server lives for as long as any process holds this
        os.close(_server._forkserver_alive_fd)
    multiprocessing.set_start_method(None, force=True)  # the user's code chooses its own, as in a process of its own
    numpy.random.seed(None)  # as in a process that starts by itself; all would draw the same
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # found anew from TMPDIR
    os.chdir(folder)
    sys.path.insert(0, folder)  # as `python -m` has it
    sys.argv = [module, argument]
    leave(import_module(module).main())


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the caller's script: multiprocessing would run it again in the new process."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
