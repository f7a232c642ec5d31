"""Where a dotted name leads: a file of somebody's own, an installed distribution, or nowhere. Nothing is imported."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from pathlib import Path

from trainparity.hashing import MISSING
from trainparity.installed import is_installed, is_of_python


@dataclass(frozen=True)
class Found:
    """Where a dotted name leads: to a file of somebody's own, to an installed distribution, or nowhere."""

    name: str = ""
    file: Path | None = None
    package: bool = False
    distribution: str = ""
    absent: bool = False


def locate(name: str) -> Found:
    """Find a dotted name as an import from the working directory would."""
    top, here = name.partition(".")[0], str(Path.cwd())
    if top in sys.stdlib_module_names and _is_standard(_spec(top, here)):
        return Found()
    spec = _spec(name, here)
    if spec is None:  # a class or function of its parent, or nothing
        return Found(absent=name == top)
    origin = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    if origin is None or is_installed(Path(origin)):
        return Found(distribution=_distribution(top))
    if not spec.has_location:  # a folder without an __init__.py holds no code
        return Found()
    package = spec.submodule_search_locations is not None
    path = name.replace(".", "/")
    return Found(f"{path}/__init__.py" if package else f"{path}{Path(origin).suffix}", Path(origin), package)


def _is_standard(spec: ModuleSpec | None) -> bool:
    """Tell whether a module of a standard name is Python's own: no file that is found before it hides it.

    What is compiled into Python no file can hide, and of what other systems have (`winreg`) there is none here.
    """
    if spec is None:
        return True
    return spec.origin is not None and (not spec.has_location or is_of_python(spec.origin))


@cache
def _spec(name: str, folder: str) -> ModuleSpec | None:
    """Find a module as an import from `folder` would, but import nothing, none of its parents either."""
    parent, _, last = name.rpartition(".")
    if parent:
        above = _spec(parent, folder)
        return _search(last, above.submodule_search_locations or []) if above else None
    for finder in sys.meta_path:  # of an editable installation, for one
        find = getattr(finder, "find_spec", None)
        if finder is not PathFinder and find and (found := find(name, None)):
            assert isinstance(found, ModuleSpec)
            return found
    return _search(name, [folder, *sys.path])


def _search(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    """Find a module in the first folder that holds it; folders of its name without an __init__.py are one package."""
    portions: list[str] = []
    for folder in folders:
        spec = _finder(folder).find_spec(name)
        if spec and spec.has_location:
            return spec
        portions += spec.submodule_search_locations or () if spec else ()
    if not portions:
        return None
    package = ModuleSpec(name, None, is_package=True)
    package.submodule_search_locations = portions
    return package


@cache
def _finder(folder: str) -> FileFinder:
    return FileFinder(
        folder or ".",
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceFileLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


def data_files(package: Path) -> list[Path]:
    """Return the files of a package's folder that are no code: templates, settings."""
    code = (*SOURCE_SUFFIXES, *BYTECODE_SUFFIXES, *EXTENSION_SUFFIXES, ".pyi")
    return [
        path
        for path in sorted(package.iterdir())
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(code)
    ]


@cache
def _distribution(top: str) -> str:
    """Return the distribution that holds a top-level module: the one of its name, else the first that installs it."""
    try:
        version(top)
        return top
    except PackageNotFoundError:
        return next((one.name for one in distributions() if _holds(one, top)), top)


def _holds(distribution: Distribution, top: str) -> bool:
    """Tell whether a distribution installs a top-level module, as it says of itself, or by its list of files.

    As `importlib.metadata.packages_distributions` does, which makes a path of each file.
    """
    if said := distribution.read_text("top_level.txt"):
        return top in said.split()
    files = "\n" + (distribution.read_text("RECORD") or "")
    return f"\n{top}/" in files or f"\n{top}." in files


@cache
def version_of(distribution: str) -> str:
    """Return the version of a distribution, `MISSING` if it has no metadata."""
    try:
        return version(distribution)
    except PackageNotFoundError:  # copied there by hand
        return MISSING


def forget() -> None:
    """Search anew from now on: files may have come or gone."""
    for found in (_spec, _finder, _distribution, version_of):
        found.cache_clear()
