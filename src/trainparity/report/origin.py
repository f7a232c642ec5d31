"""Where a page comes from, so that its figures can be made again."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trainparity import __version__


class Origin(NamedTuple):
    """What makes a page again."""

    command: str
    commit: str | None
    """Of the folder's git repository, with a word on uncommitted changes; null outside of one."""
    version: str = __version__
    """Of trainparity."""


def of(command: str, folder: Path = Path()) -> Origin:
    """Return the origin of a page that a command makes in a folder."""
    return Origin(command, _commit(folder))


def _commit(folder: Path) -> str | None:
    commit = _git(folder, "rev-parse", "HEAD")
    # A pipeline writes its own lock while it runs.
    changed = commit and _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!dvc.lock")
    return f"{commit}, with uncommitted changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    command: Sequence[str] = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
