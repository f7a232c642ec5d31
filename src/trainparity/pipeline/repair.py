"""DVC's own record of who reads and writes which path: damaged, it ends every command of DVC with 255."""

import json
import time
from pathlib import Path

_RECORD, _GUARD = "rwlock", "rwlock.lock"


def repair(folder: Path) -> str | None:
    """Move a damaged record of DVC aside, under the lock that DVC itself takes for it.

    The record is only of commands under way; a killed machine or a full disk leaves it half written.

    Args:
        folder: Somewhere in a DVC repository.

    Returns:
        What was done, in one sentence; None if there was nothing to do.
    """
    root = dvc_root(folder)
    return _repair(root / ".dvc" / "tmp") if root else None


def dvc_root(folder: Path) -> Path | None:
    """Return the DVC repository that a folder lies in; None if it lies in none."""
    here = folder.resolve()
    return next((place for place in (here, *here.parents) if (place / ".dvc").is_dir()), None)


def _repair(temporary: Path) -> str | None:
    record = temporary / _RECORD
    if not record.exists() or _is_whole(record):
        return None
    from dvc.lock import make_lock

    with make_lock(str(temporary / _GUARD), tmp_dir=str(temporary), wait=True):
        if not record.exists() or _is_whole(record):  # another process was faster
            return None
        aside = record.with_name(f"{_RECORD}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        record.replace(aside)
    return f"{record}: damaged, as after a crash or on a full disk; moved to {aside.name}"


def _is_whole(record: Path) -> bool:
    """Tell whether DVC can read its record (dvc/rwlock.py)."""
    from dvc.rwlock import SCHEMA, Invalid

    try:
        SCHEMA(json.loads(record.read_text(encoding="utf-8")))
    except (ValueError, Invalid, RecursionError):
        return False
    return True
