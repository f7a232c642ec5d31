"""What a person sees while it trains: a bar on a terminal, a line every few seconds elsewhere."""

import os
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trainparity.records.numbers import exact

_LINE_EVERY_S = 60.0 if "CI" in os.environ else 10.0
"""Between lines where there is no terminal: a CI job's log keeps each of them."""


class _Console(Console):
    """A console whose reader may leave: the training goes on without a word."""

    def on_broken_pipe(self) -> None:
        """Say no more; rich would end the process, and with it the run."""
        self.quiet = True


class TrainingProgress:
    """Counts the steps of all phases of one run; silent on all ranks but 0."""

    def __init__(self, title: str, total: int, *, main: bool) -> None:
        """`title` says which configuration of how many; `total` is the steps of all phases."""
        self._title, self._total, self._done = title, total, 0
        self._phase, self._loss = "", ""
        self._console = _Console(stderr=True, quiet=not main)
        self._next_line = time.monotonic() + _LINE_EVERY_S
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("steps  {task.fields[loss]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, disable=not (main and sys.stderr.isatty()))
        self._task = self._bar.add_task(title, total=total, loss="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def phase(self, name: str, done: int) -> None:
        """Start a phase of the run; `done` steps are behind it."""
        self._phase, self._done = name, done
        self._show(0)

    def step(self, loss: float | None = None) -> None:
        """Count one optimizer step; `loss` is its mean over the global batch."""
        if loss is not None:
            self._loss = f"loss {exact(loss, 4)}"
        self._show(1)

    def _show(self, steps: int) -> None:
        self._done += steps
        title = f"{self._title} {self._phase}"
        self._bar.update(self._task, completed=self._done, description=title, loss=self._loss)
        if self._bar.disable and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_S
            loss = f", {self._loss}" if self._loss else ""
            self._console.print(f"{title}: step {self._done} of {self._total}{loss}", highlight=False)
