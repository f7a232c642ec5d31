"""The command line's application, to which the commands are added."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer

from trainparity import __version__
from trainparity.exits import exit_code

P = ParamSpec("P")
R = TypeVar("R", bound=int | None)

ParamsPath = Annotated[Path, typer.Argument(help="The params file.", dir_okay=False)]
HtmlPath = Annotated[
    Path | None,
    typer.Option("--html", help="Write the answer as a page: layers, steps, causes, plots.", dir_okay=False),
]

app = typer.Typer(
    help="Is it still the same training, and what did it gain?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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


def command(work: Callable[P, R]) -> Callable[P, R]:
    """Add a command of the function's name. It returns its exit code, None for 0; errors end as `exit_code` has it."""

    @app.command()
    @wraps(work)
    def ending(*arguments: P.args, **options: P.kwargs) -> None:
        raise typer.Exit(exit_code(lambda: work(*arguments, **options)))

    return work
