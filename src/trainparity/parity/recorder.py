"""The recording of a training loop, from its begin to the trace that is written."""

import atexit
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import torch
from torch import Tensor

from trainparity.parity import arguments, run_folder
from trainparity.parity.recording import code
from trainparity.parity.recording.apart import in_backward, unseen
from trainparity.parity.recording.hooks import is_inside_own_step
from trainparity.parity.recording.idle import IDLE, Idle
from trainparity.parity.recording.joint import Joint
from trainparity.parity.recording.presence import RanksPart
from trainparity.parity.recording.sequence import STEPS_OF_ALL
from trainparity.parity.recording.session import NotKept, Session
from trainparity.parity.recording.trace import BY_ITSELF, ENDED
from trainparity.records.base import Settings, write_csv
from trainparity.records.numbers import counted


class Recorder:
    """Records from construction until `close`, which also runs when the process ends or a `with` block does."""

    def __init__(self, session: Session, folder: Path, *, settings: Settings) -> None:
        self._session, self._settings = session, settings
        self.folder = folder
        self._own: dict[str, Any] = {"begun": time.time(), "recording": uuid4().hex}
        """Fields of the layout that it alone knows, on the first rank."""
        self._curve: list[tuple[int, str, float]] = []
        self._loss: Tensor | None = None
        if not _OPEN:
            STEPS_OF_ALL.begin()
        self._made_before, self._stepped = STEPS_OF_ALL.made, False
        self.ended = ""
        """Why the recording ended before the training did; empty: it did not."""
        self.failure: Exception | None = None
        """Why the trace could not be written, as on a full disk; None: nothing has failed."""
        self.step = 0
        """Optimizer steps made so far, those that a loss scaler skipped among them."""
        self._closed = self._busy = False
        self._pid = os.getpid()
        if session.rank == 0:
            run_folder.remove_earlier(folder)
            self._own["code"] = code.loaded()
        if (other := _OPEN.get(folder)) is not None:
            other._give_way(session.watch.optimizer)
        _OPEN[folder] = self
        session.watch.around.call_after(self._updated)
        session.watch.clipping.on_skipped = self._skipped
        session.watch.when_exhausted(lambda why: self._end_early(f"at step {self.step} {why}"))
        session.start(0)
        atexit.register(self._close_at_exit)
        # A process that multiprocessing started, as `torch.multiprocessing.spawn` does, runs finalizers instead.
        self._finalizer = Finalize(None, self.close, exitpriority=0)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self.folder}: this Recorder is closed; call trainparity.record again")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_after(error)

    def _close_after(self, error: BaseException | None) -> None:
        """Close, and note what ended the training, if it was an error: a comparison of its steps says so."""
        if error is not None and not isinstance(error, SystemExit):
            self._settings = {**self._settings, ENDED: f"{BY_ITSELF} with {type(error).__name__}"}
        self.close()

    def _close_at_exit(self) -> None:
        with self._warned():
            self._close_after(getattr(sys, "last_value", None))

    def log(self, **values: float | Tensor) -> None:
        """Note figures of the current step, such as loss: they make the curve that whole runs are compared by."""
        for name, value in values.items():
            if not arguments.is_number(value):
                raise TypeError(f"log({name}=...) got a {type(value).__name__}; give a number, or a tensor of one")
            number = float(value.detach() if isinstance(value, Tensor) else value)
            self._curve.append((self.step, name, number))
            if name == "loss":
                self._loss = torch.tensor(number, dtype=torch.float64)

    def go_on_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the steps of another optimizer from now on, which the loop has made in place of the first."""
        self._check_open()
        self._session.watch.go_on_with(optimizer)

    def close(self) -> None:
        """Write the trace and remove all hooks."""
        if self._closed or os.getpid() != self._pid:  # a process that the training forked inherits this
            return
        self.abandon()
        try:
            self._write()
        except Exception as error:
            self.failure = error
            raise

    def _write(self) -> None:
        """Write what was recorded, on the first rank."""
        if self._session.rank:
            return
        if run_folder.recorded_since(self._own["begun"], self.folder):
            warnings.warn(f"{self.folder}: a run that began later has recorded here; its trace stays", stacklevel=4)
            return
        if self.left_out:
            layout, others = self._session.watch.facts(), STEPS_OF_ALL.made - self._made_before
            Idle(parameters=layout["parameters"], optimizer=layout["optimizer"], steps_of_others=others).write(
                self.folder / IDLE
            )
        trace = self._session.trace(self._settings)
        if trace is None:
            return
        trace.layout = trace.layout.model_copy(update=self._own)
        if self._curve:
            write_csv(self.folder / "curve.csv", ("step", "name", "value"), self._curve)
        trace.save(self.folder)

    @property
    def left_out(self) -> bool:
        """Whether the optimizer has made no step, though a backward pass has reached the model."""
        return not self._stepped and self._session.watch.backward.begun

    @property
    def parted(self) -> bool:
        """Whether the recording ended because the ranks make no more steps together."""
        return bool(self._session.watch.parted)

    @property
    def outgrown(self) -> str:
        """Which parameters the model has got or lost since recording began; empty: none."""
        return self._session.watch.structure.changed()

    def abandon(self) -> None:
        """Remove all hooks, and write nothing."""
        if isinstance(optimizer := self._session.watch.optimizer, Joint):
            optimizer.end()
        self._closed = True
        if _OPEN.get(self.folder) is self:
            del _OPEN[self.folder]
        atexit.unregister(self._close_at_exit)
        self._finalizer.cancel()
        self._session.close()

    def _give_way(self, optimizer: torch.optim.Optimizer) -> None:
        """Write nothing, as one of this optimizer has the folder now: as in a notebook whose cell is run again."""
        made, own = self.step, self._session.watch.optimizer
        self.abandon()
        if own is not optimizer:
            own.register_step_post_hook(self._refuse_step)
        if made:
            text = f"{self.folder}: a Recorder that was not closed after {counted(made, 'step')} gives way to a new one"
            warnings.warn(text, stacklevel=4)

    def _refuse_step(self, *_: Any) -> None:
        raise ValueError(
            f"{self.folder}: two Recorders at a time; give each model a name of its own: record(..., name='G')"
        )

    @unseen
    def _updated(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._busy and not is_inside_own_step(optimizer):
            self._step_made()

    def _skipped(self) -> None:
        """End a step that a loss scaler skips for an overflow."""
        if in_backward():
            self._session.watch.see_skipped()  # before the hook that makes it zeroes gradients
        self._step_made()

    def _step_made(self) -> None:
        """End a step that was made, or skipped; one in a backward pass when that has ended, as several.

        There a hook on the last gradient makes it, and what the pass shows is not whole yet.
        """
        if in_backward() and not self._session.watch.around.end_of_several:
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: engine.queue_callback(self._finish))
        else:
            self._finish()

    @unseen
    def _finish(self) -> None:
        """End a step and begin the next."""
        self._stepped = True  # also where the recording fails here
        if changed := self.outgrown:
            self._end_early(f"from step {self.step} on the model has other parameters: {changed}")
            return
        try:
            self._session.finish(lambda: self._loss, STEPS_OF_ALL.next())
            self.step += 1
            self._loss = None
            self._busy = True  # a window may load the optimizer's state, which may call its step
            self._session.start(self.step)
        except (RanksPart, NotKept) as error:
            self._end_early(f"at step {self.step} {error}")
        finally:
            self._busy = False

    def _end_early(self, why: str) -> None:
        """Write the steps so far: the trace has no place for what comes."""
        self.ended = why
        self._settings = {**self._settings, ENDED: why}
        warnings.warn(f"{self.folder}: recorded no further, {why}", stacklevel=6)
        with self._warned():
            self.close()

    @contextmanager
    def _warned(self) -> Iterator[None]:
        """Make a warning of a file that can't be written, as on a full disk: it costs the trace, not the training."""
        try:
            yield
        except OSError as error:
            warnings.warn(f"{self.folder}: its trace was not written: {error}", stacklevel=8)


def is_open(folder: Path) -> bool:
    """Tell whether a Recorder of this process has not written its trace into a folder yet."""
    return folder.absolute() in _OPEN


_OPEN: dict[Path, Recorder] = {}
"""Recorders that are not closed yet, by the folders that they will write."""
