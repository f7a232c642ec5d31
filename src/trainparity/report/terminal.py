"""Consoles that show what other people wrote, as names in a trace or messages: none of it steers the terminal."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from trainparity.printable import printable


class Terminal(Console):
    """A rich console whose texts hold no control characters; its own colours and cursor moves stay."""

    def __init__(self, **options: Any) -> None:
        """Take rich's options; a terminal that calls itself 0 columns wide, for which rich prints nothing, has 80."""
        super().__init__(**options)
        if self.width < 1:
            self.width = 80

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object as `Console` does, its texts made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise what happened: rich's own way ends with 1, which of a verdict means: not the same training."""
        raise BrokenPipeError


def make_console() -> Terminal:
    """Return a console on stdout; one that is no terminal gets room for the whole table."""
    console = Terminal(highlight=False)
    return console if console.is_terminal else Terminal(highlight=False, width=max(console.width, 120))
