"""Which dotted names a file can import, read from its syntax tree."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_DYNAMIC = ("import_module", "__import__")


def imported(path: Path, package: str) -> tuple[str, ...]:
    """Return the dotted names that a file can import; `package` is what its relative imports start from."""
    if path.suffix != ".py":  # an extension module: its imports can't be read
        return ()
    stat = path.stat()
    return _parsed(path, package, stat.st_mtime_ns, stat.st_size)


@cache
def _parsed(path: Path, package: str, _changed_ns: int, _size: int) -> tuple[str, ...]:
    source = path.read_bytes()
    try:
        tree = ast.parse(source, filename=str(path))
    except (SyntaxError, ValueError):  # who imports it will say so
        return ()
    # Of an identifier there are other spellings, which are not ASCII.
    calls = not source.isascii() or any(name.encode() in source for name in _DYNAMIC)
    return tuple(_names(_executed(tree, expressions=calls), package))


def _names(nodes: Iterable[ast.AST], package: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from filter(None, (base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)))
        elif isinstance(node, ast.Call) and _last_name(node.func) in _DYNAMIC and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def _executed(tree: ast.AST, *, expressions: bool) -> Iterator[ast.AST]:
    """Walk a tree but for what only type checkers read; through its `expressions`, too, which are most of it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif expressions:
            waiting += ast.iter_child_nodes(node)
        else:
            waiting += (inner for field in _STATEMENTS for inner in getattr(node, field, ()))


_STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where a statement holds others, or what holds others."""


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
