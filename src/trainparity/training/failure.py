"""What a rank says of its own death, for the launcher."""

import errno
import faulthandler
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from trainparity.errors import UserError, said
from trainparity.measure.compilation import CACHES
from trainparity.training.spec import CRASH, Failure, RunSpec


def tell_crashes(spec: RunSpec, rank: int) -> None:
    """Have the stacks of all threads written to a file if compiled code crashes: no exception tells of that."""
    file = (spec.work / CRASH.format(rank)).open("w", encoding="utf-8")
    faulthandler.enable(file)
    # A child that crashes is none of this rank's death: it writes to stderr, whichever handler the user has by then.
    # As this holds the file, no other file gets its number.
    os.register_at_fork(after_in_child=lambda: os.dup2(_STDERR, file.fileno(), inheritable=False))


_STDERR = 2
"""Its number as a file, also where `sys.stderr` is something else."""


def report(spec: RunSpec, rank: int, message: str, *, no_room: bool = False) -> None:
    """Write why this rank dies; called while the exception is handled."""
    line = " ".join(message.split())[:2000]
    trace = "" if isinstance(sys.exception(), UserError) else traceback.format_exc()
    failure = Failure(rank=rank, time=time.time(), message=line, traceback=trace, no_room=no_room)
    failure.write(spec.work / f"failure-{rank}.json")


def sentence(error: BaseException) -> str:
    """Say what was raised, and where in the user's own code, or by what this called."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _LIBRARIES.search(frame.filename) and Path(frame.filename).exists()]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name})" if own else ""
    text = f"{type(error).__name__}: {said(error)}".removesuffix(": ")
    caches = [f"set {name}, which is {os.environ[name]}, to a folder that can be written" for name in _refused(error)]
    return "; ".join([text + place, *getattr(error, "__notes__", ()), *caches])


_LIBRARIES = re.compile(rf"site-packages|/lib/python|^<|^{re.escape(str(Path(__file__).parents[1]))}/")
"""Files that are none of the user's."""


def is_for_want_of_room(error: BaseException) -> bool:
    """Tell whether an exception, or what it was raised for, is the machine's refusal to write a file."""
    if any(_refused(error)):
        return True
    for found in _chain(error):
        if isinstance(found, OSError) and found.errno in _NO_ROOM:
            return True
        # A compiler is a process of its own: what the system told it is in its output only.
        of_compiler = type(found).__module__.startswith(_COMPILERS)
        if of_compiler and any(os.strerror(number) in said(found) for number in _NO_ROOM):
            return True
    return False


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
_COMPILERS = ("torch._inductor.", "torch._dynamo.", "triton.")
"""Modules whose errors hold what a compiler has written."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then what it was raised for."""
    found: BaseException | None = error
    while found:
        yield found
        found = found.__cause__ or found.__context__


def _refused(error: BaseException) -> Iterator[str]:
    """Yield the variables that name a compiler's cache in which the system refused to make a file."""
    files = [found.filename for found in _chain(error) if isinstance(found, OSError)]
    paths = [Path(file) for file in files if isinstance(file, str)]
    for name in CACHES:
        cache = Path(os.environ.get(name) or os.devnull)  # which holds no file
        if any(path.is_relative_to(cache) or (cache.is_relative_to(path) and not path.exists()) for path in paths):
            yield name
