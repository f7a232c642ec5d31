"""A recording session: which steps are traced, where windows start, how a twin is moved, and the trace of it all."""

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainparity.parity.recording import ranks, windows
from trainparity.parity.recording.conditions import REDUCTION, conditions
from trainparity.parity.recording.formats import (
    NumberFormat,
    accumulated_in,
    computed_in,
    number_format,
    reduced_in,
)
from trainparity.parity.recording.groups import is_cut
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.perturb import Noise, perturb
from trainparity.parity.recording.presence import ABSENCE_S, Presence, for_at_most
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.step_arrays import StepArrays
from trainparity.parity.recording.trace import Layout, Trace
from trainparity.parity.recording.watch import StepWatch
from trainparity.records.base import RecordError, Settings


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a session traces and which state each of its windows starts from."""

    traced: Callable[[int], bool] = lambda step: True
    """Whether a step is traced."""
    window: int = 0
    """Steps of a window; 0: the run is one window."""
    keep: Path | None = None
    """Folder for the states at the windows' starts, for the runs that follow."""
    follow: Path | None = None
    """Folder of such states; each window starts from the one kept for it."""
    twin: int = 0
    """The twin's number; 0: no twin."""
    seed: int = 0
    """Seed of the twin's displacement, besides the twin's number and the step."""
    rounds_as: NumberFormat | None = None
    """Of a twin: the format that the reference computes in, where no hook sees that before weights are moved."""
    computes: NumberFormat | None = None
    """The format of the model's products, where the loop knows it; None: it is looked up in the model and autocast."""


class NotKept(RecordError):
    """The state at a window's start could not be written: the training may go on, and its recording does not."""


class Session:
    """Records a run: `start` before and `finish` after each optimizer step, in order; then `trace`."""

    def __init__(self, watch: StepWatch, plan: Plan) -> None:
        self.watch = watch
        self._plan = plan
        self._step = 0
        self._arrays = StepArrays()
        self._steps: list[int] = []
        self._facts: dict[str, Any] = {}
        self._made = 0
        self.rank = ranks.rank()
        self._keeping = Presence(f"trainparity/keeping-{next(_numbers)}")
        """Of all ranks where states are kept: the first one alone writes them, and may fail."""
        self._moved: dict[int, float] = {}
        """How coarsely a twin's weights were moved, by identity."""
        _ALL.add(self)

    def resume(self, arrays: dict[str, Tensor], step: int) -> None:
        """Continue a session that was interrupted before `step`, with the arrays that `stacked` returned."""
        self._arrays.restore(arrays)
        self._steps = [number for number in range(step) if self._plan.traced(number)]
        self._made = step

    def stacked(self) -> dict[str, Tensor]:
        """Return the arrays of the steps traced so far."""
        return self._arrays.stacked()

    def start(self, step: int, expected: Sequence[Tensor] = ()) -> None:
        """Open a window if one starts at `step`, and watch the step if it is traced.

        Args:
            step: Number of the optimizer step, from 0.
            expected: Samples of each micro-batch, where the loop knows them.
        """
        self._step = step
        if step == 0 or (self._plan.window and step % self._plan.window == 0):
            self._open_window(step)
        if self._plan.traced(step):
            self.watch.begin(expected, self._noise(step))
        else:
            self.watch.rest()

    def finish(self, loss: Callable[[], Tensor | None], sequence: int | None = None) -> Tensor | None:
        """End the step and keep what was seen of it.

        Args:
            loss: Returns the step's loss, None where the loop has not logged it; called in traced steps.
            sequence: Steps that all recorded optimizers made before this one; by default this one's own.
        """
        self._made, traced = self._step + 1, self._plan.traced(self._step)
        self.watch.end_of_run.made()
        if not traced:
            return None
        arrays = self.watch.end()
        logged = loss()
        arrays["loss"] = torch.tensor(torch.nan, dtype=torch.float64) if logged is None else logged
        arrays["loss/logged"] = torch.tensor(logged is not None)
        arrays["sequence"] = torch.tensor(self._step if sequence is None else sequence)
        self._arrays.append(arrays)
        self._steps.append(self._step)
        self._facts = self.watch.facts()
        return arrays["loss"]

    def close(self) -> None:
        """Remove all hooks."""
        _ALL.discard(self)
        self._keeping.leave()
        self.watch.close()

    def trace(self, settings: Settings) -> Trace | None:
        """Return the trace, with facts of the loop to be shown beside a verdict; None if no step was traced."""
        if not self._steps:
            return None
        arrays, computes = self.stacked(), self._computes()
        sent = reduced_in(self.watch.wrapped)
        if sent and sent.unit_roundoff > computes.unit_roundoff:
            computes = NumberFormat(f"{computes.name} reduced in {sent.name}", sent.unit_roundoff)
        end, written = self.watch.end_of_run.seen()
        layout = Layout(
            steps=self._steps,
            made=self._made,
            written=written,
            window=self._plan.window,
            precision=computes.name,
            unit_roundoff=computes.unit_roundoff,
            rounds_unseen=self._rounds_unseen(),
            sketch_size=arrays["weight/sketch"].shape[-1],
            twin=self._plan.twin,
            settings=settings,
            environment=conditions(self.watch.model) | ({REDUCTION: sent.name} if sent else {}),
            **(self._facts or self.watch.facts()),
        )
        return Trace(layout, arrays | end)

    def _noise(self, step: int) -> Noise | None:
        if not self._plan.twin or is_cut(self.watch.model):
            return None  # ranks that hold copies of one tensor would have to move them alike
        seed = derived_seed(self._plan.seed, self._plan.twin, step, self.rank)
        return Noise(seed, tf32=self._computes().name == "tf32")

    def _computes(self) -> NumberFormat:
        """Return what products are computed in, as far as it is known yet."""
        seen = self._seen()
        given = self.watch.given.format or self.watch.format_unseen()
        return given if given and seen.name == "fp32" and not self._plan.computes else seen

    def _seen(self) -> NumberFormat:
        """Return what the loop or hooks say of it."""
        return self._plan.computes or computed_in(self.watch.model, self.watch.forward.autocast.computes)

    def _rounds_unseen(self) -> bool:
        """Tell whether gradients alone have shown a coarse format."""
        return not self._plan.computes and self._seen().name == "fp32" and self.watch.format_unseen() is not None

    def _open_window(self, step: int) -> None:
        """Start from the followed run's state, so that rounding cannot grow over more than one window."""
        plan, watch = self._plan, self.watch
        if step and plan.follow is not None and windows.is_kept(plan.follow, step):
            from trainparity import checkpoints  # with torch.distributed's checkpoints: 0.5 s

            state = windows.of_step(plan.follow, step)
            _, scalars = checkpoints.load(state, watch.model, watch.optimizer, keep_settings=True)
            if (kept := scalars.get("step", step)) != step:
                raise RecordError(f"{state}: holds the state of step {kept}")
        if plan.twin:
            self._move(step)
        if step and plan.keep is not None:
            self._keep(windows.of_step(plan.keep, step), step)

    def _keep(self, folder: Path, step: int) -> None:
        """Keep the state that a step starts from.

        Raises:
            NotKept: it could not be written, by any rank.
            RanksPart: so on the other ranks.
        """
        from trainparity import checkpoints

        watch, main = self.watch, self.rank == 0
        # Before ranks gather anything: one that refused its own state would go on training beside their gathers.
        self._on_all_ranks(lambda: checkpoints.check(watch.optimizer))
        self._on_all_ranks(
            lambda: checkpoints.save(folder, watch.model, watch.optimizer, {}, {"step": step}, main=main)
        )

    def _on_all_ranks(self, keep: Callable[[], None]) -> None:
        """Do a part of keeping a state, and go on where all ranks could.

        Raises:
            NotKept: this rank could not.
            RanksPart: another one could not.
        """
        why = ""
        try:
            keep()
        except Exception as error:
            why = str(error) if isinstance(error, RecordError) else f"its state was not kept: {error!r}"
        self._keeping.come(for_at_most(ABSENCE_S), why)
        if why:
            raise NotKept(why)

    def _move(self, step: int) -> None:
        """Move a twin's weights as coarsely as its forward pass rounds, or FSDP2 the gradients that it adds up."""
        watch, seed = self.watch, derived_seed(self._plan.seed, self._plan.twin, step)
        rounded = [found for found in (self._computes(), accumulated_in(watch.model), self._plan.rounds_as) if found]
        self._move_by(max(found.unit_roundoff for found in rounded), seed, step)
        sharded = any(is_dtensor(parameter) for parameter in watch.model.parameters())
        if step or self._plan.computes or self._plan.rounds_as or sharded:
            return

        def autocast_shows(dtype: torch.dtype) -> None:
            self._move_by(number_format(dtype).unit_roundoff, seed, step)
            watch.see_start_again()

        # Before the first forward pass nothing says that there is autocast.
        watch.forward.autocast.on_seen = autocast_shows

    def _move_by(self, unit_roundoff: float, seed: int, step: int) -> None:
        """Move the weights, but for those that another optimizer's session has moved as far at the run's start."""
        others = [session._moved for session in _ALL if session is not self] if step == 0 else []
        moved = {key for other in others for key, unit in other.items() if unit >= unit_roundoff}
        perturb(self.watch.model, unit_roundoff, seed, moved)
        self._moved |= {id(parameter): unit_roundoff for parameter in self.watch.model.parameters()}


_numbers = itertools.count()

_ALL: weakref.WeakSet[Session] = weakref.WeakSet()
"""Of all models that are recorded in this process: several optimizers may hold parts of one."""
