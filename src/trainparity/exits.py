"""How every command and stage ends: one message instead of a traceback, and an exit code that a script can trust.

| code | meaning |
|---|---|
| 0 | done; of a verdict: the same training |
| 1 | of a verdict: not the same training; never anything else |
| 2 | it can't be said, or something that the caller can mend |
| 70 | a defect of trainparity (`EX_SOFTWARE` of sysexits.h) |
| 128 + n | ended by signal n |
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TextIO

from trainparity import __version__, extras
from trainparity.errors import StoppedBySignal, UserError
from trainparity.printable import printable
from trainparity.stopping import stopped_by_signals

DEFECT = 70

_OF_THE_MACHINE = {
    getattr(errno, name)
    for name in (
        "EACCES", "EAGAIN", "EBUSY", "EDQUOT", "EEXIST", "EFBIG", "EIO", "EISDIR", "ELOOP", "EMFILE", "ENAMETOOLONG",
        "ENFILE", "ENOENT", "ENOLCK", "ENOMEM", "ENOSPC", "ENOTDIR", "ENOTSUP", "EPERM", "EROFS", "ESTALE", "ETXTBSY",
        "EXDEV",
    )
}  # fmt: skip
"""What the operating system says that no code of ours can mend."""


def exit_code(work: Callable[[], int | None]) -> int:
    """Do some work and return the exit code of this process; an error is written to stderr, if that can be written to.

    Args:
        work: Returns its own exit code, None for 0.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # a path that is no UTF-8 is no reason to end without the answer
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with stopped_by_signals():
            code = work() or 0
        if sys.stdout:
            sys.stdout.flush()
    except UserError as error:
        return _said(str(error), 2)
    except (KeyboardInterrupt, StoppedBySignal) as error:
        return _stopped(error)
    except BrokenPipeError:
        _discard(sys.stdout)
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            return _defect()
        gone = error.errno == errno.ENOENT and not error.filename  # as `getcwd` says it
        where = "the current folder" if gone else error.filename or "the operating system refused"
        return _said(f"{where}: {error.strerror}", 2)
    except UnicodeEncodeError as error:
        return _said(f"{error.object[max(0, error.start - 40) : error.end]!r} is no text in {error.encoding}", 2)
    except ModuleNotFoundError as error:
        sentence = extras.explain(error)
        return _said(sentence, 2) if sentence else _defect()
    except BaseException:  # SystemExit, too: its code would read as a verdict, and no code of ours has raised it
        return _defect()
    return code


@contextmanager
def stopped_in_a_line() -> Iterator[None]:
    """End this process with a message where a signal comes that nobody else handles, as while modules are imported."""
    try:
        with stopped_by_signals():
            yield
    except (KeyboardInterrupt, StoppedBySignal) as error:
        sys.exit(_stopped(error))


def _stopped(by: KeyboardInterrupt | StoppedBySignal) -> int:
    if isinstance(by, StoppedBySignal):
        return _said(str(by), 128 + by.number)
    return _said("stopped by SIGINT", 128 + signal.SIGINT)


def shell_code(returncode: int) -> int:
    """Return the exit code that a shell gives a child process: 128 + n where `subprocess` has -n for signal n."""
    return returncode if returncode >= 0 else 128 - returncode


def say(text: str) -> None:
    """Write a message to stderr, whatever becomes of it."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):  # full, or its reader has left
        _discard(sys.stderr)


def _said(text: str, code: int) -> int:
    say(text)
    return code


def _discard(stream: TextIO) -> None:
    """Send a broken stream to nowhere: what it still buffers would raise again when the interpreter ends."""
    with suppress(ValueError):  # somebody has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _defect() -> int:
    sentence = (
        f"This is a defect of trainparity {__version__}, not a verdict. Please report the lines above, the command and "
        "what `trainparity doctor --json -` prints."
    )
    return _said(traceback.format_exc() + sentence, DEFECT)
