"""Files of a folder that hide modules of their names: Python looks for these in the working folder first."""

import sys
from pathlib import Path

_NEEDED = {"trainparity", "numpy", "pydantic", "rich", "safetensors", "torch", "typer", "yaml"}
"""What is not of Python itself and what every stage, rank or command imports."""


def files(folder: Path = Path()) -> list[str]:
    """Return files and packages of a folder that are named as a module of Python, or of what we import."""
    names = {*sys.stdlib_module_names, *_NEEDED}
    found = [path.name for path in folder.glob("*.py") if path.stem in names]
    return sorted([*found, *(path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name in names)])


def remedy_of(error: ImportError) -> str:
    """Say what to do about a module that trainparity needs and this interpreter lacks, or has another one of."""
    found = getattr(sys.modules.get((error.name or "").partition(".")[0]), "__file__", None)
    if found and Path(found).parent in {Path(sys.path[0]), Path.cwd()}:
        return f"{found} hides the package that trainparity needs: rename it"
    return "install trainparity there"
