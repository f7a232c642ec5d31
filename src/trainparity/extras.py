"""Packages that only some commands need: which extra brings each, and the one sentence that says that it is missing."""

from importlib.util import find_spec

EXTRAS = {
    "PIL": "data",
    "accelerate": "accelerate",
    "docker": "pipeline",
    "dvc": "pipeline",
    "jinja2": "report",
    "lightning": "lightning",
    "markupsafe": "report",
    "mlflow": "mlflow",
    "psutil": "pipeline",
    "pynvml": "pipeline",
    "pytest": "pytest",
    "requests": "pipeline",
    "sklearn": "data",
    "tensorboard": "tensorboard",
    "torchvision": "data",
    "transformers": "transformers",
    "vl_convert": "plots",
}
"""The extra of each module that no installation without extras has. tests/test_packages.py compares pyproject.toml."""


class MissingExtra(ModuleNotFoundError):
    """A package that an extra brings is not installed; the message names both."""


def require(module: str) -> None:
    """Stop where a module of an extra is needed soon and is not there.

    Raises:
        MissingExtra: it can't be imported.
    """
    if not is_there(module):
        raise MissingExtra(_sentence(module), name=module)


def is_there(module: str) -> bool:
    """Tell whether a module can be imported, without importing it."""
    return find_spec(module) is not None


def explain(error: ImportError) -> str | None:
    """Return one sentence for an import that failed for lack of an extra; None if it failed for something else."""
    top = (error.name or "").partition(".")[0]
    return _sentence(top) if isinstance(error, ModuleNotFoundError) and top in EXTRAS else None


def _sentence(module: str) -> str:
    return f"this needs the package {module}, which is not installed: pip install 'trainparity[{EXTRAS[module]}]'"
