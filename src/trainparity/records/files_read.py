"""What a run has read of the user's own files: kept in its work folder, and in its report when it has ended."""

from trainparity.records.base import Record

NAME = "files-read.json"


class FilesRead(Record):
    """Files that a run's main rank has opened or imported."""

    files: dict[str, str]
    """Hash of each by its path, from the project's folder if it lies below.

    Empty: it was changed meanwhile; `missing`: it was asked for and not there. Of a folder that was listed, whose name
    ends in `/`, it is the hash of the names in it."""
