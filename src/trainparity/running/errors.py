"""What a user of `run` and `ab` is told."""

from trainparity.errors import UserError


class RunError(UserError):
    """Nothing can be recorded or judged; the message says why and what to do."""
