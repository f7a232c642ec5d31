"""The command line's application, to which the commands are added."""

from typing import Annotated

import typer

from trainparity import __version__

app = typer.Typer(
    help="Is it still the same training, and what did it gain?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"trainparity {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    pass
