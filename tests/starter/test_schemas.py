"""The JSON Schemas by which editors complete and check params.yaml and claims.yaml."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trainparity import schemas, strategies, validation

ROOT = Path(__file__).parents[2]
FILES = [
    ROOT / "params.yaml",
    ROOT / "src/trainparity/starter/params.yaml",
    *sorted(ROOT.glob("studies/*/params.yaml")),
    *sorted(ROOT.glob("studies/*/claims.yaml")),
]


def schema(kind: str) -> Any:
    return json.loads((schemas.HERE / f"{kind}.json").read_text(encoding="utf-8"))


def test_the_schemas_are_what_the_models_say() -> None:
    for name, text in schemas.texts().items():
        assert (schemas.HERE / name).read_text(encoding="utf-8") == text, "run `make schemas`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_file_names_its_schema_and_fits_it(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    if "starter" in path.parts:
        assert named == "params.schema.json"  # which `init` writes beside it
    else:
        assert (path.parent / named).resolve() == (schemas.HERE / f"{path.stem}.json").resolve()
    jsonschema.validate(validation.read_yaml(path), schema(path.stem))


@pytest.mark.parametrize("line", [{"startegy": "ddp"}, {"strategy": "dpp"}, {"world_size": 0}, {"compile": True}])
def test_a_mistake_is_marked(line: dict[str, Any]) -> None:
    content = validation.read_yaml(ROOT / "params.yaml")
    content["configs"]["ddp"] = line
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema("params"))


def test_fields_are_described_and_strategies_listed() -> None:
    configuration = schema("params")["$defs"]["Configuration"]["properties"]
    assert configuration["world_size"]["description"]
    assert configuration["strategy"]["enum"] == strategies.names()
