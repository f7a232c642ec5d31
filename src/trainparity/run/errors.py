"""What a user of `run` and `ab` is told."""


class RunError(Exception):
    """Nothing can be recorded or judged; the message says why and what to do. Exit code 2."""
