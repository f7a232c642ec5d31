"""How every record is written and read: typed, whole or not at all."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainparity.absent import no_such_file
from trainparity.errors import UserError
from trainparity.records.files import write_text

RowT = TypeVar("RowT")

INFINITE = 1e300
"""Stands for infinity in a record, as JSON has none."""


def significant(value: float, digits: int) -> float:
    """Round to so many significant digits, which is all that a drawn or listed number needs."""
    return float(f"{value:.{digits}g}")


Settings = dict[str, str | int | float | bool | None]


class RecordError(UserError):
    """A record that is missing or damaged; the message names the file."""


class Record(BaseModel):
    """A JSON file: immutable, read strictly, written whole or not at all, keys in the order of the fields.

    A field's docstring is its description in the JSON Schema.
    What checks a record is built when the first one is made or read: it would delay every import.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, defer_build=True)

    def write(self, path: Path) -> None:
        """Write the record as JSON under a temporary name, then rename it."""
        write_text(path, self.as_json())

    def as_json(self) -> str:
        """Return the text of the record's file."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record.

        Raises:
            RecordError: the file is missing or is not such a record.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise RecordError(no_such_file(path, "`trainparity repro` makes it")) from None
        except IsADirectoryError:
            raise RecordError(f"{path}: is a folder, and not a file") from None
        except ValidationError as error:
            raise RecordError(f"{path}: {_what_is_wrong(error)}") from None


def _what_is_wrong(error: ValidationError) -> str:
    found = error.errors()
    version = next((one for one in found if one["loc"] in _VERSIONS and "expected" in one.get("ctx", {})), None)
    if version:
        return (
            f"written in format {version['input']}, as by another version of trainparity, and this one reads format "
            f"{version['ctx']['expected']}: record it again"
        )
    first = found[0]
    if first["type"] == "json_invalid":
        return f"damaged: {first['msg']}"
    where = ".".join(str(key) for key in first["loc"])
    return f"not the record expected here: {where}: {first['msg']}" if where else f"damaged: {first['msg']}"


_VERSIONS = (("version",), ("schema_version",))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file whole or not at all."""
    write_text(path, csv_text(header, rows))


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a CSV file's text; an empty cell is a null."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def refuse_endless(path: Path) -> None:
    """Refuse what is there and is no file: a pipe or a device in the folder of a run can be read without end.

    Raises:
        RecordError: names it.
    """
    if path.exists() and not path.is_file():
        raise RecordError(f"{path}: is no file")


def read_csv(path: Path, parse: Callable[[dict[str, str]], RowT]) -> list[RowT]:
    """Parse each row of a CSV file that has a header; a cell that a row lacks is empty.

    Raises:
        RecordError: the file is missing or damaged; the message names it, and the line.
    """
    rows: list[RowT] = []
    refuse_endless(path)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, restval=""):
                rows.append(parse(row))
    except FileNotFoundError:
        raise RecordError(no_such_file(path, "`trainparity repro` makes it")) from None
    except KeyError as error:
        raise RecordError(f"{path}: not the table expected here: no column {error}") from None
    except (csv.Error, ValueError) as error:
        what = str(error)
        what = what if len(what) <= _LONGEST else f"{what[:_LONGEST]} ..."
        raise RecordError(f"{path}: not the table expected here: row {len(rows) + 1}: {what}") from None
    return rows


_LONGEST = 200
"""Characters of a damaged file that a message shows."""
