"""Watches worker processes to their end: signals reach them, and the first that fails stops the others."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import FrameType

from trainparity.errors import StoppedBySignal, UserError
from trainparity.exits import say
from trainparity.launch.warm import WarmProcess
from trainparity.parentage import is_ending
from trainparity.stopping import handle_stops

GRACE_S = 60
"""Seconds that a stopped worker has to write its checkpoint."""

_ONE_SIGNAL_S = 1.0
"""What comes so soon after a signal is the same one: services send it to all processes, and our parent hands it on."""

Worker = subprocess.Popen[bytes] | WarmProcess


def watch(workers: Sequence[Worker]) -> dict[int, int]:
    """Wait until all workers of a run have ended; where one fails, the others are stopped.

    After a signal that ends a command they may write a checkpoint; a second one, or the end of their grace, kills them.

    Args:
        workers: By rank; several only if they were forked.

    Returns:
        Exit codes of the ranks that failed before they were stopped, a signal's number negated.

    Raises:
        StoppedBySignal: this process got such a signal; the workers have ended.
        UserError: the process that they were forked from was killed; they are killed too.
    """
    received: list[int] = []
    began = 0.0

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal began
        received.append(number)
        if len(received) > 1:
            if time.monotonic() - began > _ONE_SIGNAL_S:
                _kill(workers)
        else:
            began = time.monotonic()
            is_ending()
            _stop(workers)
            name = signal.Signals(number).name
            say(f"{name}: up to {GRACE_S} s for the step to end and a checkpoint; a second signal ends it at once")

    codes: dict[int, int] = {}
    alive = set(range(len(workers)))
    with handlers_restored(forward):
        while alive:
            ended = _first_to_end(workers, alive)
            found = {rank: workers[rank].wait() for rank in ended}
            if None in found.values():
                _kill(workers)
                if received:
                    break
                raise UserError(
                    "the process that workers are forked from was killed (the system may have run out of memory); run "
                    "it again to resume from the last checkpoint"
                )
            failed = {rank: code for rank, code in found.items() if code}
            alive -= set(ended)
            if failed and not codes:
                codes = failed
                _stop([workers[rank] for rank in alive])
    if received:
        raise StoppedBySignal(received[0])
    return codes


def _first_to_end(workers: Sequence[Worker], alive: set[int]) -> list[int]:
    """Wait for one of the ranks that are alive; return all that have ended."""
    forked = {worker.fileno(): rank for rank in alive if isinstance(worker := workers[rank], WarmProcess)}
    if not forked:
        return sorted(alive)
    return sorted(forked[ready] for ready in wait(list(forked)) if isinstance(ready, int))


def _stop(workers: Sequence[Worker]) -> None:
    """Have workers write a checkpoint and end; what lives after its grace is killed."""
    for worker in workers:
        worker.terminate()
    killer = threading.Timer(GRACE_S, _kill, [workers])
    killer.daemon = True
    killer.start()


def _kill(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.kill()


@contextmanager
def handlers_restored(forward: Callable[[int, FrameType | None], None] | None = None) -> Iterator[None]:
    """Restore the signal handlers at the end: torchrun's agent replaces these and does not restore them.

    Args:
        forward: Handles the signals that end a command, if given. In another than the main thread nothing can.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        if forward:
            handle_stops(forward)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
