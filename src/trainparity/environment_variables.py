"""Variables of this process's environment, set for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while: `check` is a function of the caller's process, too."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
