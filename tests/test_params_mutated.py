"""Damaged params files: each is read, or refused in lines that name the file; none ends in a traceback."""

import copy
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainparity import params
from trainparity.validation import ParamsError, parse_yaml, read_yaml

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "params.yaml", *sorted(ROOT.glob("studies/*/params.yaml"))]
MUTATIONS = 200
"""Of each kind, for each file: 2,400 in all."""

DEEP: Any = 0
for _ in range(50):
    DEEP = {"a": [DEEP]}
VALUES: list[Any] = [
    None, True, 0, -1, 1, 3, 2**63, 2**200, -(2**70), 0.5, 1e300, -1e-300, float("nan"), float("inf"), "", "x", "ddp",
    "reference", "../..", "a\x00b", "\u202e", "1e3", "fp16", [], [None], [[1]], {}, {"name": None}, {None: 1},
    {1: 2}, {"name": "ddp"}, {"": {}}, DEEP, ["a"] * 1000,
]  # fmt: skip


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a file, the whole included."""
    found = [path]
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


def mutated(content: Any, chance: random.Random) -> Any:
    """Replace, remove, rename or copy one to three values."""
    whole = {"content": copy.deepcopy(content)}
    for _ in range(chance.randint(1, 3)):
        *above, key = ("content", *chance.choice(places(whole["content"])))
        holder: Any = whole
        for step in above:
            holder = holder[step]
        match chance.choice(["replace", "replace", "remove", "rename", "copy"]):
            case "replace":
                holder[key] = copy.deepcopy(chance.choice(VALUES))
            case "remove" if len(holder) > 1:
                del holder[key]
            case "rename" if isinstance(holder, dict) and holder is not whole:
                holder[chance.choice(["x", f"{key}s", "name", None, 7])] = holder.pop(key)
            case "copy" if isinstance(holder, dict) and holder is not whole:
                holder[f"{key}-copy"] = copy.deepcopy(holder[key])
    return whole["content"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name if path.parent != ROOT else "root")
def test_no_change_of_a_value_ends_in_a_traceback(path: Path) -> None:
    content, chance = read_yaml(path), random.Random(0)
    refused = 0
    for _ in range(MUTATIONS):
        changed = mutated(content, chance)
        try:
            params.parse(changed, Path("params.yaml"))
        except ParamsError as error:
            refused += 1
            assert all(line.startswith("params.yaml: ") for line in str(error).splitlines()), str(error)
    assert refused > MUTATIONS / 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name if path.parent != ROOT else "root")
def test_no_damage_of_the_text_ends_in_a_traceback(path: Path, tmp_path: Path) -> None:
    text, chance, damaged = path.read_text(encoding="utf-8"), random.Random(1), tmp_path / "params.yaml"
    for _ in range(MUTATIONS):
        start, size = chance.randrange(len(text)), chance.choice([0, 1, 1, 5, 40])
        piece = chance.choice(
            ["", "\t", ":", "- ", "{", "}", "[", "&a ", "*a", "!!python/object:os.system", "\x00", "é"]
        )
        damaged.write_text(text[:start] + piece + text[start + size :], encoding="utf-8")
        try:
            params.load(damaged)
        except ParamsError as error:
            assert str(damaged) in str(error)


@pytest.mark.parametrize(
    "tag", ["bool", "int", "float", "null", "timestamp", "binary", "omap", "pairs", "set", "seq", "map"]
)
@pytest.mark.parametrize("value", ["x", "é", "''", "[]", "[1]", "{a: 1}"])
def test_a_value_that_is_none_of_its_tags_is_no_yaml(tag: str, value: str) -> None:
    with suppress(ParamsError):
        parse_yaml(f"a: !!{tag} {value}", "params.yaml")


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 3000, "? " * 3000, "&a [*a]", "a: &a {b: *a}"])
def test_deep_and_endless_nesting_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParamsError, match=r"params\.yaml: "):
        params.load(tmp_path / "params.yaml")


def test_what_is_written_back_is_read_as_the_same() -> None:
    for path in FILES:
        settings = params.load(path)
        assert params.parse(yaml.safe_load(yaml.safe_dump(settings.model_dump(mode="json"))), path) == settings
