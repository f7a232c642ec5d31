"""Which steps of a run are traced."""

from collections.abc import Callable

INTERVAL = 50
"""Steps from one that is traced to the next, where nobody says so."""

_OFTEN = 2000
"""Steps from which on fewer are traced then: half as many whenever their number has doubled."""


def schedule(first: int, interval: int | None, *, window: int) -> Callable[[int], bool]:
    """Return what tells of a step whether it is traced, by its number alone, so that other runs trace the same ones.

    Args:
        first: Steps from the start that are.
        interval: Steps from one to the next after those. None: 50, and from step 2,000 on 100, from 4,000 on 200, and
            so on, as a trace that grows with the run would fill the memory of a long one.
        window: Steps of a window that is judged by itself; 0: there are none. With an `interval` of None every 50th of
            each window is traced then, from its first one on, however late it comes; and its last one, which begins
            with what all others of the window have done to the weights.
    """

    def apart(step: int) -> int:
        return interval or INTERVAL << (step // _OFTEN).bit_length()

    def in_window(step: int) -> bool:
        place = step % window
        return place % INTERVAL == 0 or place == window - 1

    if window and interval is None:
        return lambda step: step < first or in_window(step)
    return lambda step: step < first or step % apart(step) == 0
