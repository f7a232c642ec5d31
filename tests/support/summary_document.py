"""docs/summary-schema.md, generated from the models: `python -m tests.support.summary_document` writes it again."""

from pathlib import Path
from typing import Any

from trainparity.report.schema import Summary

DOCUMENT = Path(__file__).parents[2] / "docs" / "summary-schema.md"
MARK = "<!-- generated from the models; see tests/support/summary_document.py -->\n"


def schema() -> dict[str, Any]:
    return Summary.model_json_schema(mode="serialization")


def expected() -> str:
    """Return the document as it should be: its introduction as it is, and a table for each model."""
    introduction, _, _ = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    found = schema()
    models = {"Summary": found, **dict(sorted(found["$defs"].items()))}
    return introduction + MARK + "".join(_section(name, model) for name, model in models.items())


def _section(name: str, model: dict[str, Any]) -> str:
    rows = [f"| `{field}` | {_type(value)} | {_meaning(value)} |" for field, value in model["properties"].items()]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
    return f"\n## {name}\n\n{_meaning(model)}\n\n{table}\n"


def _meaning(node: dict[str, Any]) -> str:
    return " ".join(str(node["description"]).split())  # a KeyError is a field without a docstring


def _type(node: dict[str, Any]) -> str:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in node:
        return " or ".join(_type(branch) for branch in node["anyOf"])
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if node["type"] == "array":
        return f"array of {_type(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"object of {_type(node['additionalProperties'])}"
    return str(node["type"])


if __name__ == "__main__":
    DOCUMENT.write_text(expected(), encoding="utf-8")
