"""A column of a table, whatever shows it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from trainparity.records.base import csv_text
from trainparity.records.numbers import number

Place = Literal["console", "page", "details"]
"""`details` is the page's second table of the same rows."""

T = TypeVar("T")


def at(path: str) -> Callable[[Any], Any]:
    """Return a function that follows a path of attributes such as `run.timing.compile_s`, to null where one is."""

    def follow(row: Any) -> Any:
        for name in path.split("."):
            row = None if row is None else getattr(row, name)
        return row

    return follow


def _nothing(row: object) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Column(Generic[T]):
    """What a column shows of a row, and its fields in the CSV file."""

    heading: str = ""
    """In lower case; a line break stays one. Empty: the column is in the CSV file only."""
    fields: Mapping[str, Callable[[T], Any]] = field(default_factory=dict)
    """Columns of the CSV file by name; an empty cell is a null."""
    text: Callable[[T], str] | None = None
    """What people read; by default the first field as a number."""
    note: Callable[[T], str] = _nothing
    """Small print below the text, on the page only; nothing if empty."""
    style: Callable[[T], str] = _nothing
    """A key of `STYLES`, by which the console colours the text; a verdict's is its class on the page too."""
    numeric: bool = True
    """Whether it is aligned to the right."""
    places: Sequence[Place] = ("console", "page")

    def cell(self, row: T) -> str:
        """Return what people read."""
        return self.text(row) if self.text else number(next(iter(self.fields.values()))(row))


def shown_in(place: Place, columns: Iterable[Column[T]]) -> list[Column[T]]:
    """Return the columns that a place shows."""
    return [column for column in columns if column.heading and place in column.places]


def to_csv(columns: Iterable[Column[T]], rows: Iterable[T]) -> str:
    """Write all fields of all columns."""
    fields = {name: value for column in columns for name, value in column.fields.items()}
    return csv_text(fields, ([value(row) for value in fields.values()] for row in rows))
