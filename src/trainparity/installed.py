"""Which code somebody has installed, so that a version stands for it, and which is the user's own."""

import os
from pathlib import Path


def is_installed(path: Path | str) -> bool:
    """Tell whether a file lies where installers put packages, of any environment: `site-packages`, `dist-packages`."""
    text = os.fspath(path).replace(os.sep, "/")
    return "/site-packages/" in text or "/dist-packages/" in text
