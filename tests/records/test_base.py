"""How records are written and read."""

import re
from pathlib import Path
from typing import Literal

import pytest

from trainparity.records.base import RecordError
from trainparity.records.known_answer import KnownAnswer

RECORD = KnownAnswer(
    claim="B1",
    published=[1.0],
    decimals=4,
    measured={"b": [1.0], "a": [2.0]},
    largest_difference=0.0,
    reproduced=True,
)


def test_a_record_survives_writing_and_keeps_its_order(tmp_path: Path) -> None:
    RECORD.write(tmp_path / "deep/er/r.json")
    again = KnownAnswer.read(tmp_path / "deep/er/r.json")
    assert again == RECORD and list(again.measured) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "r.json: no such file; `trainparity repro` makes it"),
        ("{", "r.json: damaged: Invalid JSON"),
        ("{}", "r.json: not the record expected here: claim: Field required"),
        (
            RECORD.model_dump_json().replace("B1", 'B1","extra":"'),
            "r.json: not the record expected here: extra: Extra inputs",
        ),
    ],
)
def test_a_missing_or_damaged_record_is_named(tmp_path: Path, text: str | None, expected: str) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)
    with pytest.raises(RecordError, match=re.escape(expected)):
        KnownAnswer.read(tmp_path / "r.json")


def test_a_record_of_another_version_is_to_be_made_again(tmp_path: Path) -> None:
    class Versioned(KnownAnswer):
        version: Literal[3] = 3

    (tmp_path / "r.json").write_text(RECORD.model_dump_json().replace("{", '{"version":2,', 1))
    with pytest.raises(RecordError, match=r"written in format 2, .* this one reads format 3: record it again"):
        Versioned.read(tmp_path / "r.json")


def test_a_record_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"r\.json: damaged"):
        KnownAnswer.read(tmp_path / "r.json")


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RECORD.claim = "B2"  # type: ignore[misc]
