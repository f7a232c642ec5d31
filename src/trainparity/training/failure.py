"""What a rank says of its own death, for the launcher."""

import errno
import re
import time
import traceback
from pathlib import Path

from trainparity.errors import said
from trainparity.training.spec import Failure, RunSpec


def report(spec: RunSpec, rank: int, message: str) -> None:
    """Write why this rank dies; called while the exception is handled."""
    line = " ".join(message.split())[:2000]
    failure = Failure(rank=rank, time=time.time(), message=line, traceback=traceback.format_exc())
    failure.write(spec.work / f"failure-{rank}.json")


def sentence(error: BaseException) -> str:
    """Say what was raised, and where in the user's own code, or by what this called."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _LIBRARIES.search(frame.filename) and Path(frame.filename).exists()]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name})" if own else ""
    text = f"{type(error).__name__}: {said(error)}".removesuffix(": ")
    return "; ".join([text + place, *getattr(error, "__notes__", ())])


_LIBRARIES = re.compile(rf"site-packages|/lib/python|^<|^{re.escape(str(Path(__file__).parents[1]))}/")
"""Files that are none of the user's."""


def is_for_want_of_room(error: BaseException) -> bool:
    """Tell whether an exception, or what it was raised for, is the machine's refusal to write a file."""
    found: BaseException | None = error
    while found:
        if isinstance(found, OSError) and found.errno in _NO_ROOM:
            return True
        found = found.__cause__ or found.__context__
    return False


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
