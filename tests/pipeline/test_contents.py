"""A file is hashed again when it may be another one, whatever its size and time of modification."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainparity.pipeline.contents import content_of, contents_of

DATA = Path("data/values.bin")
MEMORY = Path(".trainparity/contents.json")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DATA.parent.mkdir()
    written("1")


def written(text: str) -> None:
    DATA.write_text(text)
    os.utime(DATA, (1, 1))


def unpacked() -> None:
    DATA.unlink()
    written("2")


def edited() -> None:
    written("2")


def moved_there() -> None:
    before = DATA.rename("before")
    before.write_text("1")
    Path("after").write_text("2")
    os.utime("after", (1, 1))
    Path("after").replace(DATA)


@pytest.mark.parametrize("change", [unpacked, edited, moved_there])
def test_another_content_of_the_same_size_and_time_is_seen(change: Callable[[], None]) -> None:
    before = content_of(DATA.parent), contents_of([DATA])
    change()
    assert content_of(DATA.parent) != before[0] and contents_of([DATA]) != before[1]


def test_a_file_that_is_as_it_was_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = contents_of([DATA])
    monkeypatch.setattr("hashlib.file_digest", None)
    assert contents_of([DATA]) == first


@pytest.mark.parametrize("damage", [lambda: MEMORY.write_bytes(b"\xff"), lambda: (MEMORY.unlink(), MEMORY.mkdir())])
def test_a_damaged_memory_is_none(damage: Callable[[], object]) -> None:
    first = contents_of([DATA])
    damage()
    assert contents_of([DATA]) == first
