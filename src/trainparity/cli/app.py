"""The command line's application, to which the commands are added."""

from importlib.metadata import version
from typing import Annotated

import typer

app = typer.Typer(
    help="Is it still the same training, and what did it gain?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"trainparity {version('trainparity')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    pass
