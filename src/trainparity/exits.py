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
from collections.abc import Callable

from trainparity import __version__, extras
from trainparity.errors import StoppedBySignal, UserError

DEFECT = 70

_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENAMETOOLONG}


def exit_code(work: Callable[[], int | None]) -> int:
    """Do some work and return the exit code of this process; an error is written to stderr.

    Args:
        work: Returns its own exit code, None for 0.
    """
    try:
        code = work() or 0
        sys.stdout.flush()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped by SIGINT", file=sys.stderr)
        return 128 + signal.SIGINT
    except StoppedBySignal as error:
        print(error, file=sys.stderr)
        return 128 + error.number
    except BrokenPipeError:
        # What is still buffered would raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            return _defect()
        print(f"{error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if not (sentence := extras.explain(error)):
            return _defect()
        print(sentence, file=sys.stderr)
        return 2
    except Exception:
        return _defect()
    return code


def _defect() -> int:
    traceback.print_exc()
    print(
        f"This is a defect of trainparity {__version__}, not a verdict. Please report the lines above, the command "
        "and what `trainparity doctor --json` prints.",
        file=sys.stderr,
    )
    return DEFECT
