"""Keeps what a worker process reads of the user's own files: a result, or a checkpoint, is of these contents."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from trainparity.observed import Observed
from trainparity.records.files_read import NAME, FilesRead
from trainparity.training.spec import RunSpec


@contextmanager
def files_read(spec: RunSpec, rank: int) -> Iterator[Callable[[], None]]:
    """Note what the main rank reads, and write it down at the end, and whenever the function that is given is called.

    What an interrupted attempt has read, which this one resumes, counts too.
    """
    if rank:
        yield lambda: None
        return
    path, observed = spec.work / NAME, Observed([spec.work, spec.data, *([spec.reference] if spec.reference else [])])
    before = FilesRead.read(path).files if path.exists() else {}

    def keep() -> None:
        FilesRead(files=before | observed.files()).write(path)

    try:
        yield keep
    except BaseException:
        with suppress(OSError):  # as on a full disk: what has failed is said
            keep()
        raise
    keep()
