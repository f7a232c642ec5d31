"""Which steps of a run are traced."""

from collections.abc import Callable

INTERVAL = 50
"""Steps from one that is traced to the next, where nobody says so."""

_OFTEN = 2000
"""Steps from which on fewer are traced then: half as many whenever their number has doubled."""


def schedule(first: int, interval: int | None, *, in_windows: bool) -> Callable[[int], bool]:
    """Return what tells of a step whether it is traced, by its number alone, so that other runs trace the same ones.

    Args:
        first: Steps from the start that are.
        interval: Steps from one to the next after those. None: 50, and from step 2,000 on 100, from 4,000 on 200, and
            so on, as a trace that grows with the run would fill the memory of a long one.
        in_windows: Whether the run is judged in windows: each of them needs steps then, however late it comes.
    """

    def apart(step: int) -> int:
        if interval is None and not in_windows:
            return INTERVAL << (step // _OFTEN).bit_length()
        return interval or INTERVAL

    return lambda step: step < first or step % apart(step) == 0
