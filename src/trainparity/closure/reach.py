"""Which code a program consists of: files and distributions that its imports reach, found without running any of it.

A file is hashed if it lies outside of the environment: ours in a checkout, and the user's own, with what else lies in
the folder of a package (templates, settings). Of an installed distribution the version counts. Imports inside functions
count too; those under `if TYPE_CHECKING:` do not.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from trainparity.closure.imports import imported
from trainparity.closure.modules import data_files, forget, locate, version_of
from trainparity.hashing import MISSING, hash_of

_OURS = __name__.partition(".")[0]
_COMPUTES_WITH = ("numpy", "pillow", "scikit-learn")
"""What trainparity makes numbers with, besides torch: where it is installed, its own imports are not followed."""


@dataclass(frozen=True)
class Closure:
    """The code of a program, without any path of this machine."""

    files: dict[str, str]
    """SHA-256 of each file, first 16 digits, by its module's path (`package/module.py`) ."""
    distributions: dict[str, str]
    """Version of each installed distribution that a file imports, by its name."""

    def __or__(self, other: "Closure") -> "Closure":
        return Closure(self.files | other.files, self.distributions | other.distributions)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits over all files and versions."""
        facts = [*sorted(self.files.items()), "", *sorted(self.distributions.items())]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def closure_of(modules: Iterable[str] = (), known: "dict[str, Part] | None" = None) -> Closure:
    """Return the code that importing modules can come to run.

    Args:
        modules: Dotted names, importable from the working directory or the environment.
        known: What earlier calls have found, and what this one adds; valid while no file changes.
    """
    known = nothing_known() if known is None else known
    names, files, distributions = list(modules), dict[str, str](), dict[str, str]()
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in known:
            known[name] = _part(name)
        part = known[name]
        files |= part.files
        distributions |= part.distributions
        names += part.imports
    return Closure(files, distributions)


@dataclass(frozen=True)
class Part:
    """What one dotted name adds to a closure."""

    files: dict[str, str]
    distributions: dict[str, str]
    imports: tuple[str, ...]


def nothing_known() -> dict[str, Part]:
    """Return an empty memory: files may have come or gone since the last call."""
    forget()
    return {}


def _part(name: str) -> Part:
    found, parent = locate(name), name.rpartition(".")[0]
    above = (parent,) if parent else ()
    if found.file:
        folder = found.name.rpartition("/")[0]
        files = (
            {f"{folder}/{path.name}": hash_of(path) for path in data_files(found.file.parent)} if found.package else {}
        )
        imports = imported(found.file, name if found.package else parent)
        return Part(files | {found.name: hash_of(found.file)}, {}, (*above, *imports))
    if found.distribution:
        counted = (found.distribution, *(_COMPUTES_WITH if found.distribution == _OURS else ()))
        return Part({}, {one: version_of(one) for one in counted}, above)
    return Part({}, {name: MISSING} if found.absent else {}, above)


def hashes_now(names: Iterable[str]) -> dict[str, str]:
    """Return the hash of each of a closure's files as it is now; of one that is not found there is none."""
    forget()
    located = {name: _file_of(name) for name in names}
    return {name: hash_of(file) for name, file in located.items() if file and file.is_file()}


def _file_of(name: str) -> Path | None:
    """Return where a closure's file lies: a module's, or one beside the code of a package."""
    path = Path(name)
    if path.suffix in _CODE:
        module = path.parent if path.stem == "__init__" else path.with_suffix("")
        return locate(".".join(module.parts)).file
    package = locate(".".join(path.parent.parts)).file
    return package.with_name(path.name) if package else None


_CODE = {Path(suffix).suffix or suffix for suffix in (*SOURCE_SUFFIXES, *BYTECODE_SUFFIXES, *EXTENSION_SUFFIXES)}
