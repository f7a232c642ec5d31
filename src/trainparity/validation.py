"""YAML files against typed sections: every mistake is named by file, key, value and what is allowed."""

import difflib
import math
import re
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from trainparity.absent import no_such_file
from trainparity.errors import UserError


class ParamsError(UserError):
    """A params file that can't be used; the message has one line per mistake."""


class Section(BaseModel):
    """A part of a settings file: immutable, keys that it does not know are mistakes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


SectionT = TypeVar("SectionT", bound=Section)


class _Yaml(yaml.SafeLoader):
    """Safe YAML whose numbers are YAML 1.2's, as DVC reads them, and in which a key given twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MOST_VALUES:
            raise yaml.constructor.ConstructorError(None, None, "too many keys are merged", node.start_mark)


_MOST_VALUES = 100_000
"""Of one file, with its aliases written out; a few lines of aliases to aliases can stand for billions."""

_NUMBERS = {
    "int": r"[-+]?(0|[1-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+)",
    "float": r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
}
"""YAML 1.1, which PyYAML reads, has 5e-5 for a text, 1:30 for 90 and 017 for 15."""
_Yaml.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in rules if tag.rpartition(":")[2] not in _NUMBERS]
    for first, rules in _Yaml.yaml_implicit_resolvers.items()
}
for _name, _form in _NUMBERS.items():
    _Yaml.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^({_form})$"), list("-+.0123456789"))


def read_yaml(path: Path) -> Any:
    """Return the parsed content of a YAML file; a `ParamsError` names the file and the place of a mistake."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        made_by = "`trainparity init` writes one" if path.name == "params.yaml" else ""
        raise ParamsError(no_such_file(path, made_by)) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ParamsError(f"{path}: not UTF-8: byte {error.object[error.start]:#04x} in line {line}") from None


def parse_yaml(text: str, name: str) -> Any:
    """Return the content of a YAML text, which a `ParamsError` calls by `name`."""
    try:
        content = yaml.load(text, Loader=_Yaml)  # a SafeLoader: it makes plain values only
        values = _values(content, {})
    except RecursionError:
        raise ParamsError(f"{name}: nested too deeply to be read") from None
    except MemoryError:
        raise
    except Exception as error:  # of a value that is none of its tag PyYAML raises whatever it runs into
        raise ParamsError(f"{name}: not YAML: {error}") from None
    if values > _MOST_VALUES:
        raise ParamsError(f"{name}: its aliases stand for more than {_MOST_VALUES:,} values, or for themselves")
    return content


def _values(content: Any, known: dict[int, float]) -> float:
    """Return how many values a content has with every alias written out; infinity if one stands for itself."""
    if not isinstance(content, dict | list):
        return 1
    if id(content) not in known:
        known[id(content)] = math.inf
        parts = content.values() if isinstance(content, dict) else content
        known[id(content)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(content)]


def validate(model: type[SectionT], content: Any, path: Path, prefix: Sequence[str] = ()) -> SectionT:
    """Validate `content` as `model`.

    Raises:
        ParamsError: one line per mistake; key paths start with `prefix`.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        mistakes = _outside_of_wrong_keys(error.errors())
        lines = [_line(model, mistake, path, prefix) for mistake in mistakes[:_MOST_LINES]]
        if left := mistakes[_MOST_LINES:]:
            lines.append(f"{path}: and {len(left):,} mistakes more")
        raise ParamsError("\n".join(lines)) from None


def not_one_of(value: object, allowed: Sequence[str]) -> str:
    """Say that a value is not allowed, which ones are, and which one was probably meant."""
    if not allowed:
        return f"{value!r}; allowed: none"
    hint = f"; did you mean {close[0]}?" if (close := _by_likeness(str(value), allowed)) else ""
    return f"{value!r} is not one of {', '.join(allowed)}{hint}"


def _by_likeness(value: str, allowed: Sequence[str]) -> list[str]:
    """Return the allowed values that `value` may be a slip of the keyboard for, the likeliest first."""

    def likeness(name: str) -> float:
        # A wrong letter is likelier than a letter too many: `dpp` is `ddp` rather than `dp`.
        return difflib.SequenceMatcher(None, value, name).ratio() + 0.2 * (len(name) == len(value))

    return sorted((name for name in allowed if likeness(name) > 0.7), key=likeness, reverse=True)


def mistake(text: str, *keys: str) -> PydanticCustomError:
    """Make an error of a check across keys; `keys` leads from the checked section to the value at fault."""
    return PydanticCustomError("mistake", "{text}", {"text": text, "keys": keys})


def _outside_of_wrong_keys(mistakes: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out mistakes below a key that is no text: pydantic's place of them has the key as nobody wrote it."""
    wrong = {mistake["loc"][:-1] for mistake in mistakes if mistake["loc"][-1:] == ("[key]",)}
    return [
        mistake
        for mistake in mistakes
        if mistake["loc"][-1:] == ("[key]",) or not any(mistake["loc"][: len(place)] == place for place in wrong)
    ]


def _line(model: type[BaseModel], mistake: ErrorDetails, path: Path, prefix: Sequence[str]) -> str:
    """Write one mistake as `file: key.path: what is wrong and what is allowed`."""
    context = mistake.get("ctx", {})
    is_key = mistake["loc"][-1:] == ("[key]",)
    keys = [str(key) for key in mistake["loc"] if key != "[key]"]
    if "dataset" in keys[:1] and len(keys) > 1:
        del keys[1]  # pydantic puts the dataset's name there, which is no key of the file
    keys = [*prefix, *keys, *context.get("keys", ())]
    value = mistake["input"]
    match mistake["type"]:
        case "extra_forbidden":
            text = "unknown key: " + not_one_of(keys[-1], _fields_beside(model, mistake["loc"]))
        case "missing":
            text = "missing; it has no default"
        case "literal_error":
            text = not_one_of(value, [v.strip("'") for v in re.split(", | or ", context["expected"])])
        case "union_tag_invalid":
            keys.append("name")
            text = not_one_of(context["tag"], re.findall(r"'([^']*)'", context["expected_tags"]))
        case "union_tag_not_found":
            keys.append("name")
            text = "missing; it has no default"
        case "mistake":
            text = context["text"]
        case "too_short" | "too_long":
            short = mistake["type"] == "too_short"
            number = f"at least {context['min_length']}" if short else f"at most {context['max_length']}"
            text = f"{_SHORT.repr(value) if value else 'empty'}; allowed: {number}"
        case "dict_type" | "model_type" | "model_attributes_type" | "list_type":
            allowed = "a list" if mistake["type"] == "list_type" else "keys and their values"
            text = f"{'empty' if value is None else _SHORT.repr(value)}; allowed: {allowed}"
        case "string_type" | "invalid_key" if is_key or mistake["type"] == "invalid_key":
            del keys[-1]
            text = f"the key {_SHORT.repr(value)}{_WRITTEN.get(repr(value), '')} is no text in YAML: put it into quotes"
        case _:
            text = f"{_SHORT.repr(value)}: {mistake['msg'][0].lower()}{mistake['msg'][1:]}"
    place = ".".join(key if key.isprintable() else repr(key)[1:-1] for key in keys)
    return ": ".join(part for part in (str(path), place, text) if part)


_WRITTEN = {"True": " (on, yes or true)", "False": " (off, no or false)", "None": " (null, ~ or nothing)"}
"""What stands in a file where YAML has a key that is no text."""
_MOST_LINES = 50
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def _fields_beside(model: Any, location: Sequence[int | str]) -> list[str]:
    """List the keys that the section holding `location` knows."""
    for key in location[:-1]:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[str(key)].annotation
            if type(None) in get_args(model):  # a section that may be left out
                model = get_args(model)[0]
        elif (choices := [m for m in get_args(model) if key in _tags(m)]) or (choices := _unions(model, key)):
            model = choices[0]
        else:  # dict[name, section]: the key is a name
            model = get_args(model)[1]
    if get_origin(model) is Annotated:
        model = get_args(model)[0]
    return list(model.model_fields)


def _tags(model: Any) -> tuple[Any, ...]:
    """Return the names that a member of a union goes by."""
    if isinstance(model, type) and issubclass(model, BaseModel) and "name" in model.model_fields:
        return get_args(model.model_fields["name"].annotation)
    return ()


def _unions(model: Any, key: int | str) -> list[Any]:
    """Return the members of an annotated union that go by `key`."""
    return [m for union in get_args(model) for m in get_args(union) if key in _tags(m)]
