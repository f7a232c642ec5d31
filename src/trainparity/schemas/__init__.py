"""JSON Schemas of params.yaml and claims.yaml, for editors: `python -m trainparity.schemas` writes them again."""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from trainparity import strategies
from trainparity.claims.schema import Claim
from trainparity.params import Params

HERE = Path(__file__).parent
PARAMS, CLAIMS = "params.json", "claims.json"


def texts() -> dict[str, str]:
    """Return the text of each schema by its file's name."""
    params, claims = Params.model_json_schema(), TypeAdapter(dict[str, Claim]).json_schema()
    # The model takes any text here and asks the registry, so that a new strategy is no change of the model.
    params["$defs"]["Configuration"]["properties"]["strategy"]["enum"] = strategies.names()
    return {PARAMS: _text(params, "params.yaml"), CLAIMS: _text(claims, "claims.yaml")}


def write(folder: Path = HERE) -> None:
    """Write both schemas."""
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(schema: dict[str, Any], title: str) -> str:
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps({"$schema": dialect} | schema | {"title": title}, indent=1) + "\n"
