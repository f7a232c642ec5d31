"""Whether a result or a checkpoint is still of the files that made it: those that the run has read."""

import shutil
from pathlib import Path

from trainparity.hashing import FOLDER, MISSING, hash_of, names_in
from trainparity.records.base import RecordError
from trainparity.records.files_read import NAME, FilesRead


def as_they_were(folder: Path) -> bool:
    """Tell whether each file that a folder names still has the content that was read; also where it names none."""
    path = folder / NAME
    if not path.exists():
        return True
    try:
        files = FilesRead.read(path).files
    except RecordError:
        return False
    return all(_content(name) == digest for name, digest in files.items())


def _content(name: str) -> str:
    path = Path(name)
    if name.endswith(FOLDER):
        return names_in(path)
    return hash_of(path) if path.is_file() else MISSING


def hand_over(work: Path, report: Path) -> None:
    """Copy the record of a run into its report."""
    if (work / NAME).exists():
        report.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work / NAME, report / NAME)
