import jsonschema
import pytest

from tests.support import summary_document
from trainparity.report.schema import Summary

SCHEMA = summary_document.schema()


def test_the_schema_is_a_schema_and_the_summary_follows_it(built: Summary) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(built.model_dump(mode="json"), SCHEMA)


def test_the_schema_rejects_another_version(built: Summary) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(built.model_dump(mode="json") | {"schema_version": 1}, SCHEMA)


def test_the_document_has_every_field_of_every_model() -> None:
    """`make docs` writes it."""
    assert summary_document.DOCUMENT.read_text(encoding="utf-8") == summary_document.expected()
