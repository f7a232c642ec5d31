"""The templates' environment: what they may call, and how they write what others wrote."""

import re

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from trainparity.printable import printable
from trainparity.records.numbers import number
from trainparity.records.verdict import Resolution, Worst
from trainparity.report import format, templates


def environment() -> Environment:
    """Return what renders the files of `templates`; names and messages of others become neither markup nor control."""
    made = Environment(
        loader=FileSystemLoader(templates.FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": number,
        "fixed": format.fixed,
        "mebibytes": format.mebibytes,
        "exact": format.evidence,
        "sentence": format.sentence,
        "code": _code,
        "worst_row": _worst_row,
        "resolution_row": _resolution_row,
        "items_row": lambda facts: [(name, *both) for name, both in facts.items()],
    }
    return made


def _shown(value: object) -> object:
    """Return what an expression of a template shows: text of others holds no control characters."""
    return printable(value) if type(value) is str else value


def _code(text: str) -> Markup:
    """Return text of others, in which what stands between backticks is code."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(printable(text)))))


_BACKTICKS = re.compile("`([^`]+)`")


def _worst_row(worst: Worst) -> tuple[str, ...]:
    figures = (number(value) for value in (worst.distance_over_floor, worst.distance, worst.floor))
    return worst.tensor, worst.kind, str(worst.step), *figures


def _resolution_row(seen: Resolution) -> tuple[str, ...]:
    return seen.kind, number(seen.whole), number(seen.weakest), seen.tensor
