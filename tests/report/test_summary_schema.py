import re
from pathlib import Path

import jsonschema
import pytest

from tests.support.schema_paths import paths
from trainparity.environment import Accelerator, Environment
from trainparity.report.schema import AcceleratorSummary, EnvironmentSummary, Summary

DOCUMENT = Path(__file__).parents[2] / "docs" / "summary-schema.md"
SCHEMA = Summary.model_json_schema(mode="serialization")
ROW = re.compile(r"^\| `(?P<path>[^`]+)` \| (?P<type>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE)


def test_the_schema_is_a_schema_and_the_summary_follows_it(built: Summary) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(built.model_dump(mode="json"), SCHEMA)


def test_the_schema_rejects_another_version(built: Summary) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(built.model_dump(mode="json") | {"schema_version": 1}, SCHEMA)


def test_every_property_is_documented_with_its_type() -> None:
    documented = {row["path"]: row["type"] for row in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))}
    # A reference has a configuration's fields, a pair's curves those of `curves`; the document says so once.
    repeated = ("references.", "pairs.<name>.curves.")
    expected = {path: kind for path, kind in paths(SCHEMA).items() if not path.startswith(repeated)}
    assert documented == expected


def test_references_have_the_fields_of_configurations() -> None:
    properties = SCHEMA["properties"]
    assert properties["references"]["additionalProperties"] == properties["configurations"]["additionalProperties"]


def test_the_document_names_the_version() -> None:
    assert f"Version {Summary.model_fields['schema_version'].default}." in DOCUMENT.read_text(encoding="utf-8")


def test_every_fact_of_the_environment_is_in_the_summary() -> None:
    assert set(EnvironmentSummary.model_fields) == {*Environment.model_fields, "fingerprint"}
    assert set(AcceleratorSummary.model_fields) == set(Accelerator.model_fields)
