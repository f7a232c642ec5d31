"""What ends a command other than its result."""

import signal


class UserError(Exception):
    """Something that the caller can mend; the message says where, what is wrong and what to do."""


def said(error: BaseException) -> str:
    """Return what an exception says; a user's own may fail at that, too."""
    try:
        return str(error)
    except Exception:
        return "(its text can't be made)"


class StoppedBySignal(BaseException):
    """A signal ended the work; `then` says what is left of a run.

    As KeyboardInterrupt no Exception: code that handles errors, of a workload too, takes it for none of them.
    """

    def __init__(self, number: int, then: str = "run it again to resume from the last checkpoint") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}" + (f"; {then}" if then else ""))
        self.number = number
