"""The paths of a JSON Schema, as docs/summary-schema.md writes them."""

import json
from collections.abc import Iterator
from typing import Any


def paths(schema: dict[str, Any]) -> dict[str, str]:
    """Return the type of every property by its path: `pairs.<name>.worst[].floor` is a `number`."""
    return dict(_walk(schema, schema["$defs"], ""))


def _walk(node: dict[str, Any], defs: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    node = _resolved(node, defs)
    for branch in node.get("anyOf", []):
        yield from _walk(branch, defs, path)
    for key, value in node.get("properties", {}).items():
        below = f"{path}.{key}".lstrip(".")
        yield below, _type(value, defs)
        yield from _walk(value, defs, below)
    if isinstance(node.get("additionalProperties"), dict):
        yield from _walk(node["additionalProperties"], defs, f"{path}.<name>")
    if "items" in node:
        yield from _walk(node["items"], defs, f"{path}[]")


def _type(node: dict[str, Any], defs: dict[str, Any]) -> str:
    node = _resolved(node, defs)
    if "anyOf" in node:
        return " or ".join(_type(branch, defs) for branch in node["anyOf"])
    if "const" in node:
        return json.dumps(node["const"])
    if "enum" in node:
        return ", ".join(node["enum"])
    if node["type"] == "array":
        return f"array of {_type(node['items'], defs)}"
    return str(node["type"])


def _resolved(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    return defs[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
