"""The checkpoint of a run: written at the same step on every rank, loaded when the run resumes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from trainparity import checkpoints
from trainparity.stopping import handle_stops
from trainparity.training.loop import Trainer


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is written."""


class StopRequest:
    """Becomes true on a signal that ends a command; the loop then writes a checkpoint and ends."""

    def __init__(self) -> None:
        self._requested = False
        handle_stops(self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True

    def __call__(self) -> bool:
        """Tell whether this process was asked to stop."""
        return self._requested


def any_rank_is_to_stop(trainer: Trainer, stop_requested: Callable[[], bool]) -> bool:
    """Tell all ranks alike whether one of them was asked to stop; every rank must call it."""
    return bool(trainer.strategy.gather(torch.tensor(int(stop_requested()))).any())


class Resuming:
    """Keeps a trainer's checkpoint in a folder."""

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        *,
        stop_requested: Callable[[], bool],
        before_checkpoint: Callable[[], None],
    ) -> None:
        self._trainer, self._folder = trainer, folder
        self._stop_requested, self._before_checkpoint = stop_requested, before_checkpoint

    def load(self) -> tuple[dict[str, Tensor], int]:
        """Load the checkpoint, if there is one; return the arrays kept with it, and the step to resume at."""
        if not (self._folder / "state.json").exists():
            return {}, 0
        trainer = self._trainer
        arrays, scalars = checkpoints.load(self._folder, trainer.plain, trainer.optimizer)
        trainer.scaler.load_state_dict(scalars["scaler"])
        return arrays, int(scalars["step"])

    def keep(self, step: int, arrays: Callable[[], dict[str, Tensor]]) -> None:
        """Write a checkpoint every `train.checkpoint_every` steps, and at the same step of all ranks if one is to stop.

        Args:
            step: Optimizer steps made so far.
            arrays: Returns the arrays to keep beside the state.

        Raises:
            Interrupted: a stop was requested.
        """
        trainer = self._trainer
        stop = any_rank_is_to_stop(trainer, self._stop_requested)
        if step >= trainer.num_steps or not (stop or step % trainer.train.checkpoint_every == 0):
            return
        scalars = {"step": step, "scaler": trainer.scaler.state_dict()}
        main = trainer.execution.rank == 0
        self._before_checkpoint()
        checkpoints.save(self._folder, trainer.plain, trainer.optimizer, arrays(), scalars, main=main)
        if stop:
            raise Interrupted(f"stopped after step {step} of {trainer.num_steps}")

    def remove(self) -> None:
        """Remove the checkpoint of a run that has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)


MakeResuming = Callable[[Trainer, Path], Resuming]
"""Makes what keeps a trainer's checkpoint in a folder."""
