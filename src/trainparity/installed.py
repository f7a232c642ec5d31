"""Which code somebody has installed, so that a version stands for it, and which is the user's own."""

from pathlib import Path


def is_installed(path: Path) -> bool:
    """Tell whether a file lies where installers put packages, of any environment: `site-packages`, `dist-packages`."""
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
