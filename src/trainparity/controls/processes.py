"""One function on many items, in processes that end with their owner."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

from trainparity.environment import usable_cores
from trainparity.parentage import end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield what a function returns for each item, in their order, from processes of one thread each.

    Raises:
        concurrent.futures.process.BrokenProcessPool: a process was killed.
    """
    with _processes() as pool:
        # Not `pool.map`: stopped, it cancels what the pool is about to end itself, which then waits for ever to hand
        # on items of more than a pipe's 64 KiB.
        results = [pool.submit(work, item) for item in items]
        for result in results:
            while not wait([result], _SIGNALS_S).done:
                pass
            yield result.result()


_SIGNALS_S = 1.0
"""How long one wait lasts: a signal that comes as it begins is seen after it, and would be never after one that goes on
for ever."""


@contextmanager
def _processes() -> Iterator[ProcessPoolExecutor]:
    """Yield processes that start as fresh interpreters: a fork of one that has used torch may hang.

    They end at once where this process is stopped: the pool would wait for what they train.
    """
    start = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), start, _begin) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _begin() -> None:
    end_with_parent()  # which, stopped while it starts this one, does not know of it
    torch.set_num_threads(1)
