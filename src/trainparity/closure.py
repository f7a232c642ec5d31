"""Which code a program consists of: files and distributions that its imports reach, found without running any of it.

A file is hashed if it lies outside of the environment: ours in a checkout, and the user's own, with what else lies in
the folder of a package (templates, settings). Of an installed distribution the version counts. Imports inside functions
count too; those under `if TYPE_CHECKING:` do not.
"""

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
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
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

_DYNAMIC = ("import_module", "__import__")
MISSING = "missing"
"""Stands for an import that finds nothing, which may be meant: one that comes later changes the program."""


@dataclass(frozen=True)
class Closure:
    """The code of a program, without any path of this machine."""

    files: dict[str, str]
    """SHA-256 of each file, first 16 digits, by its module's path (`package/module.py`) or the given script's name."""
    distributions: dict[str, str]
    """Version of each installed distribution that a file imports, by its name."""

    def __or__(self, other: "Closure") -> "Closure":
        return Closure(self.files | other.files, self.distributions | other.distributions)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits over all files and versions."""
        facts = [*sorted(self.files.items()), "", *sorted(self.distributions.items())]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def closure_of(
    modules: Iterable[str] = (), scripts: Iterable[Path] = (), known: "dict[str, Part] | None" = None
) -> Closure:
    """Return the code that importing modules, or running scripts, can come to run.

    Args:
        modules: Dotted names, importable from the working directory or the environment.
        scripts: Files; each is named in the result by its folder's name and its own.
        known: What earlier calls have found, and what this one adds; valid while no file changes.
    """
    known = nothing_known() if known is None else known
    names, files, distributions = list(modules), dict[str, str](), dict[str, str]()
    for script in scripts:
        files[f"{script.resolve().parent.name}/{script.name}"] = hash_of(script)
        names += _imported(script, "")
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
    _spec.cache_clear()
    _finder.cache_clear()
    return {}


def _part(name: str) -> Part:
    found, parent = _locate(name), name.rpartition(".")[0]
    above = (parent,) if parent else ()
    if found.file:
        folder = found.name.rpartition("/")[0]
        files = {f"{folder}/{path.name}": hash_of(path) for path in _data(found.file.parent)} if found.package else {}
        imports = _imported(found.file, name if found.package else parent)
        return Part(files | {found.name: hash_of(found.file)}, {}, (*above, *imports))
    if found.distribution:
        return Part({}, {found.distribution: _version(found.distribution)}, above)
    return Part({}, {name: MISSING} if found.absent else {}, above)


@dataclass(frozen=True)
class _Found:
    """Where a dotted name leads: to a file of somebody's own, to an installed distribution, or nowhere."""

    name: str = ""
    file: Path | None = None
    package: bool = False
    distribution: str = ""
    absent: bool = False


def _locate(name: str) -> _Found:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return _Found()
    spec = _spec(name, str(Path.cwd()))
    if spec is None:  # a class or function of its parent, or nothing
        return _Found(absent=name == top)
    origin = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    if origin is None or _installed(Path(origin)):
        return _Found(distribution=_distribution(top))
    if not spec.has_location:  # a folder without an __init__.py holds no code
        return _Found()
    package = spec.submodule_search_locations is not None
    path = name.replace(".", "/")
    return _Found(f"{path}/__init__.py" if package else f"{path}{Path(origin).suffix}", Path(origin), package)


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


def _data(package: Path) -> list[Path]:
    """Return the files of a package's folder that are no code: templates, settings."""
    code = (*SOURCE_SUFFIXES, *BYTECODE_SUFFIXES, *EXTENSION_SUFFIXES, ".pyi")
    return [
        path
        for path in sorted(package.iterdir())
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(code)
    ]


def _installed(path: Path) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in path.parts)


def _distribution(top: str) -> str:
    """Return the distribution that holds a top-level module."""
    try:
        version(top)
        return top
    except PackageNotFoundError:
        return next(iter(_by_module().get(top, ())), top)


_by_module = cache(packages_distributions)  # reads every distribution's list of files: 0.2 s


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # copied there by hand
        return MISSING


def hash_of(path: Path) -> str:
    """Return the first 16 digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _imported(path: Path, package: str) -> tuple[str, ...]:
    """Return the dotted names that a file can import; `package` is what its relative imports start from."""
    if path.suffix != ".py":  # an extension module: its imports can't be read
        return ()
    stat = path.stat()
    return _parsed(path, package, stat.st_mtime_ns, stat.st_size)


@cache
def _parsed(path: Path, package: str, _changed_ns: int, _size: int) -> tuple[str, ...]:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError):  # who imports it will say so
        return ()
    return tuple(_names(tree, package))


def _names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from filter(None, (base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)))
        elif isinstance(node, ast.Call) and _last_name(node.func) in _DYNAMIC and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree but for what only type checkers read."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _last_name(node: ast.expr) -> str:
    """Return the name of `name` and `module.name`; empty for any other expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module that `from ... import` names, without leading dots."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])
