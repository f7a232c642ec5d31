"""Where DVC keeps what it has seen: the contents of files by their MD5, and its notes of what it ran."""

import configparser
from contextlib import suppress
from pathlib import Path

from trainparity.pipeline.repair import dvc_root


def folder() -> Path | None:
    """Return the folder of the cache; None outside of a DVC repository.

    A temporary experiment, and whoever shares a cache, names another repository's in the configuration.
    """
    root = dvc_root(Path.cwd())
    if root is None:
        return None
    config = configparser.ConfigParser(strict=False, interpolation=None)
    with suppress(configparser.Error, UnicodeDecodeError):  # DVC says what is wrong with it
        config.read([root / ".dvc" / name for name in ("config", "config.local")], encoding="utf-8")
    return root / ".dvc" / config.get("cache", "dir", fallback="cache")


def file(md5: str) -> Path:
    """Return where the content of a file is kept."""
    return (folder() or Path(".dvc/cache")) / "files" / "md5" / md5[:2] / md5[2:]


def notes() -> Path | None:
    """Return a folder beside DVC's notes of its runs, which `dvc push --run-cache` and `repro --pull` carry along."""
    found = folder()
    return found / "runs" / "trainparity" if found else None
