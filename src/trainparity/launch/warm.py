"""Worker processes forked from one that has imported torch already: many short runs then start at once.

Only for runs that are not timed, each of one process. Linux alone: macOS's frameworks do not survive a fork.
(https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods)
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import ModuleType

from trainparity.training.spec import WORKER

_context: ForkServerContext | None = None


@contextmanager
def warm_workers() -> Iterator[None]:
    """Have a process ready for as long as this lasts, from which `start_warm` forks."""
    global _context
    if _context is not None or sys.platform != "linux":
        yield
        return
    _context = multiprocessing.get_context("forkserver")
    _context.set_forkserver_preload([WORKER])
    try:
        yield
    finally:
        _context = None
        forkserver._forkserver._stop()  # type: ignore[attr-defined]


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
        process.start()
    return process


def _serve(module: str, argument: str, environment: dict[str, str], folder: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [module, argument]
    sys.exit(import_module(module).main())


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the caller's script: multiprocessing would run it again in the new process."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
