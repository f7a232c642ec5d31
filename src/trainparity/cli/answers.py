"""Where an answer goes besides the terminal: JSON and Markdown, into files or to standard output."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from trainparity.errors import UserError
from trainparity.printable import printable
from trainparity.records.files import is_stream, write_text

STDOUT = Path("-")
"""Stands for standard output, where the answer then takes the place of the table."""

_ANSWERS = ("json_path", "markdown_path", "html_path")
_WRITTEN = ("keep", "folder", "save")
"""Options, by the names of their parameters: those of answers, and folders that a command writes besides."""

JsonPath = Annotated[
    Path | None, typer.Option("--json", help="Write the answer as JSON; `-`: to standard output.", dir_okay=False)
]
MarkdownPath = Annotated[
    Path | None,
    typer.Option(
        "--markdown", help="Write the table as Markdown, for a CI job; `-`: to standard output.", dir_okay=False
    ),
]


def give(
    json_path: Path | None,
    as_json: Callable[[], str],
    markdown_path: Path | None,
    as_markdown: Callable[[], str],
    show: Callable[[], object],
) -> None:
    """Write what was asked for, and print the table by `show`: not where an answer goes to its place.

    Where a file can't be written, the terminal has the answer all the same: it may have taken hours.
    """
    wanted = ((json_path, as_json), (markdown_path, as_markdown))
    try:
        for path, text in sorted(wanted, key=lambda one: one[0] != STDOUT):
            if path == STDOUT:
                sys.stdout.write(printable(text()))
            elif path:
                write_text(path, text())
    finally:
        if STDOUT not in (json_path, markdown_path):
            show()


@contextmanager
def kept_apart(*paths: Path | None) -> Iterator[None]:
    """Where standard output is an answer's: meanwhile send what the user's code prints to standard error.

    That of the processes that are started meanwhile, too.
    """
    if STDOUT not in paths:
        yield
        return
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()  # whoever kept it may have printed
        os.dup2(answer, 1)
        os.close(answer)


def require_places(named: Mapping[str, object]) -> None:
    """Stop before any work if an answer could not be written, would replace what the command reads, or another answer.

    Args:
        named: A command's options, those of this module, `html_path` and a folder to `save` in among them.

    Raises:
        UserError: names the options, or the place.
    """
    places: dict[Path, str] = {}
    for name, path in named.items():
        option = f"--{name.removesuffix('_path')}"
        if name == "save" and isinstance(path, Path) and (problem := _unwritable(path.absolute() / "of-a-study.json")):
            raise UserError(f"{option} {path}: {problem}")
        if name not in _ANSWERS or not isinstance(path, Path):
            continue
        if path == STDOUT and name == "html_path":
            raise UserError("--html -: a page is not for the terminal; name a file")
        place = path if path == STDOUT or is_stream(path) else path.resolve()
        if place in places:
            raise UserError(f"{places[place]} and {option} both go to {path}: give each a place of its own")
        places[place] = option
        if path != STDOUT and (problem := _unwritable(place) or _among(place, named)):
            raise UserError(f"{option} {path}: {problem}")


def remove_earlier(*paths: Path | None) -> None:
    """Remove the answers of an earlier call: where this one fails or is killed, none may be taken for its own.

    To be called once a command has read what it was told to, and before its work: a call that is a mistake removes
    nothing, as the file may be no answer either. Not for where an answer goes by default: that is a result that is
    kept.
    """
    for path in paths:
        if path and path != STDOUT and not is_stream(path) and path.is_file():
            path.resolve().unlink()


def _among(place: Path, named: Mapping[str, object]) -> str | None:
    """Say that a place is one of what a command reads, by its options, or may be one in a folder that it reads."""
    for name, value in named.items():
        if name in (*_ANSWERS, *_WRITTEN):
            continue
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, Path):
                continue
            if source.resolve() == place:
                return f"is {source}, which is read; name another file"
            if source.resolve() in place.parents and place.exists() and place.suffix in _READ:
                return f"is there and lies in {source}, which is read; name another file"
    return None


_READ = (".csv", ".json", ".safetensors", ".yaml")
"""What files end with that a command may read in a folder."""


def _unwritable(path: Path) -> str | None:
    if path.is_dir():
        return "is a folder; name a file"
    if path.exists():
        return None if os.access(path, os.W_OK) else "may not be written"
    nearest = next(folder for folder in path.parents if os.path.lexists(folder))
    if not nearest.is_dir():
        return f"{nearest} is no folder"
    return None if os.access(nearest, os.W_OK) else f"nothing may be written in {nearest}"


def refuse_stdout(*paths: Path | None) -> None:
    """Stop where standard output belongs to another program.

    Raises:
        UserError: one of the paths stands for standard output.
    """
    if STDOUT in paths:
        raise UserError("standard output is the recorded script's: name a file for --json and --markdown")
