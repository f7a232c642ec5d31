"""The command line's application, to which the commands are added."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from trainparity import __version__
from trainparity.cli import answers
from trainparity.exits import exit_code
from trainparity.params import LARGEST_MARGIN

P = ParamSpec("P")
R = TypeVar("R", bound=int | None)

ParamsPath = Annotated[Path, typer.Argument(help="The params file.", dir_okay=False)]
HtmlPath = Annotated[
    Path | None,
    typer.Option("--html", help="Write the answer as a page: layers, steps, causes, plots.", dir_okay=False),
]

Margin = Annotated[
    float,
    typer.Option(
        help="`equivalent`: within so many times the noise floor in fp32; in bf16 and fp16 5/16 of it.",
        min=1,
        max=LARGEST_MARGIN,
    ),
]

_PANELS = {
    "Is it the same training?": ("ab", "run", "compare", "check", "curves", "export"),
    "A project and its pipeline": ("init", "repro", "train", "show", "plots", "status", "validate", "join"),
    "This machine, and what the checker is tried on": ("doctor", "controls", "studies"),
}
"""The commands as `--help` lists them."""


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for names in _PANELS.values() for name in names]


app = typer.Typer(
    cls=_InOrder,
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

    [panel] = [title for title, names in _PANELS.items() if work.__name__ in names]

    @app.command(rich_help_panel=panel)
    @wraps(work)
    def ending(*arguments: P.args, **options: P.kwargs) -> None:
        def all_of_it() -> int | None:
            answers.require_places(options)
            return work(*arguments, **options)

        raise typer.Exit(exit_code(all_of_it))

    return work
