"""What the user's data consists of, as a hash: of a file its bytes, of a folder its files and their names."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainparity.records.base import Record, RecordError

_KNOWN = Path(".trainparity/contents.json")


class Contents(Record):
    """Hashes that are computed already."""

    files: dict[str, tuple[int, int, int, int, str]]
    """Of each file its size, two times of its last change, its number in its file system, and its hash."""


def content_of(path: Path) -> str:
    """Return 16 digits that are equal for equal contents on any machine; none if there is nothing.

    Hidden files, which no dataset is read from, count for nothing.
    """
    files = dict(_files(path))
    digests, whole = _digests(files.values()), hashlib.sha256()
    for name, file in files.items():
        whole.update(f"{name}\0{digests[file]}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()[:16] if path.exists() else ""


def contents_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the first 16 digits of each file's SHA-256, of those that are there."""
    return {file: digest[:16] for file, digest in _digests(path for path in paths if path.is_file()).items()}


def _digests(files: Iterable[Path]) -> dict[Path, str]:
    """Return the SHA-256 of each file; one is read again where its size, a time or its number is another one.

    What unpacks or copies a file can give it any time of modification; the time of the change itself nobody can set.
    """
    try:
        known = Contents.read(_KNOWN).files
    except RecordError:  # the first time, or of an earlier version
        known = {}
    found = dict(known)
    digests: dict[Path, str] = {}
    for file in files:
        status = file.stat()
        now = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        as_it_was = known.get(str(file))
        if as_it_was is None or as_it_was[:-1] != now:
            with file.open("rb") as stream:
                as_it_was = (*now, hashlib.file_digest(stream, "sha256").hexdigest())
        found[str(file)] = as_it_was
        digests[file] = as_it_was[-1]
    if found != known:
        Contents(files=found).write(_KNOWN)
    return digests


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files below a folder, linked folders too, with their names in it; of a file itself with no name."""
    if not path.is_dir():
        yield from [("", path)] if path.is_file() else []
        return
    entered = set[str]()
    for folder, folders, files in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:  # a link to a folder around it
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = Path(folder, name)
            if not name.startswith(".") and file.is_file():
                yield file.relative_to(path).as_posix(), file
