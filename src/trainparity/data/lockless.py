"""A context of multiprocessing whose events have no lock, which a process that is killed would keep for ever."""

import multiprocessing
from multiprocessing.context import BaseContext


def lockless(start_method: str | None) -> BaseContext:
    """Return a context for a DataLoader's workers, which look at one event for each batch.

    Killed while it holds the lock of `multiprocessing.Event`, a worker would leave this process waiting for ever,
    whatever happens to the other workers.
    """
    context = type(multiprocessing.get_context(start_method))()  # one of our own: multiprocessing keeps one for all
    context.Event = lambda: _Flag(context)  # type: ignore[assignment, method-assign, return-value]
    return context


class _Flag:
    """An event of which no process ever waits for another: what is set is a message that nobody takes."""

    def __init__(self, context: BaseContext) -> None:
        self._looked_at, self._raised_by = context.Pipe(duplex=False)

    def is_set(self) -> bool:
        return self._looked_at.poll()

    def set(self) -> None:
        self._raised_by.send_bytes(b"end")
