"""How a stage script ends: its exit code and, on a mistake, one clear message instead of a traceback."""

import signal
import sys
from collections.abc import Callable

from trainparity.records.base import RecordError
from trainparity.validation import ParamsError


class StoppedBySignal(Exception):
    """A signal ended a run; its checkpoint is kept."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class StageError(Exception):
    """Something that the stage needs is not there; the message says what, and what to do."""


def exit_code(stage: Callable[[], None]) -> int:
    """Run a stage: 0 if it ends, 1 if anything is missing, 2 for a mistake in params, 128 + n on signal n."""
    try:
        stage()
    except ParamsError as error:
        print(error, file=sys.stderr)
        return 2
    except (RecordError, StageError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped by SIGINT", file=sys.stderr)
        return 128 + signal.SIGINT
    except StoppedBySignal as error:
        print(f"{error}; run it again to resume from the last checkpoint", file=sys.stderr)
        return 128 + error.number
    return 0
