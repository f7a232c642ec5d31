"""Which code somebody has installed, so that a version stands for it, and which is the user's own."""

import os
import sysconfig
from pathlib import Path

_OF_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


def is_installed(path: Path | str) -> bool:
    """Tell whether a file lies where installers put packages, of any environment: `site-packages`, `dist-packages`."""
    text = os.fspath(path).replace(os.sep, "/")
    return "/site-packages/" in text or "/dist-packages/" in text


def is_of_python(path: str) -> bool:
    """Tell whether a file lies where Python's own modules do; what is installed may lie below."""
    return path.startswith(_OF_PYTHON)
