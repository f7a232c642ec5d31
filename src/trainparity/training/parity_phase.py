"""The traced phase: deterministic, in windows, resumable; its result is the run's `state`."""

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from trainparity.parity.trace import Layout, Recorder, Trace
from trainparity.records import write_text
from trainparity.training import checkpoints
from trainparity.training.loop import MicroBatch, Trainer, perturb
from trainparity.training.precision import UNIT_ROUNDOFF, deterministic
from trainparity.training.spec import RunSpec

Progress = Callable[[float], None]
"""Called after each step with its loss."""


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is written."""


class ParityPhase:
    """Trains with the trace on: a reference, a twin of one, or a run that follows a reference."""

    def __init__(self, spec: RunSpec, trainer: Trainer, *, twin: int, stop_requested: Callable[[], bool]) -> None:
        self._spec, self._trainer, self._twin = spec, trainer, twin
        self._stop_requested = stop_requested
        self._main = trainer.execution.rank == 0
        self._name = f"twins/{twin}" if twin else ""
        self._output = spec.work / "state" / self._name
        self._checkpoint = spec.work / "checkpoints" / (f"twin-{twin}" if twin else "run")
        self._is_reference = spec.reference is None and not twin
        self._trace = Trace.empty(self._layout())
        self._recorder = Recorder(self._trace, main=self._main)

    @property
    def _starts(self) -> Path:
        """Where the reference keeps the states that windows start from."""
        return (self._spec.reference or self._spec.work / "state") / "windows"

    def _layout(self) -> Layout:
        trainer, parity = self._trainer, self._spec.parity
        return Layout(
            parameters={name: list(p.shape) for name, p in trainer.plain.named_parameters()},
            buffers={name: list(b.shape) for name, b in trainer.plain.named_buffers()},
            steps=trainer.num_steps,
            window=min(parity.window, trainer.num_steps),
            precision=trainer.precision,
            unit_roundoff=UNIT_ROUNDOFF[trainer.precision],
            sketch_size=parity.sketch_size,
            world_size=trainer.execution.world_size,
        )

    def run(self, progress: Progress) -> None:
        """Train all steps, from the last checkpoint if there is one, and write trace and weights.

        Raises:
            Interrupted: a stop was requested; the next call goes on from there.
        """
        if (self._output / "trace.json").exists():  # written last: this phase is complete
            return
        with deterministic():
            start = self._resume()
            batches = self._trainer.batches(start, self._trainer.num_steps, self._spec.configuration.loader)
            for step, micro_batches in enumerate(batches, start):
                if step in self._trace.layout.starts:
                    self._start_window(step)
                progress(self._step(step, micro_batches))
                self._keep(step + 1)
        self._write()

    def _step(self, step: int, micro_batches: list[MicroBatch]) -> float:
        trainer, recorder = self._trainer, self._recorder
        loss = trainer.step(step, micro_batches, self._record_gradients)
        parameters = recorder.record("weight", step, trainer.plain.named_parameters())
        recorder.record("buffer", step, trainer.plain.named_buffers())
        samples = sum(_hash(i) for m in micro_batches if m.counted for i in m.batch["samples"].tolist())
        total = trainer.strategy.sum(torch.tensor([float(loss)], dtype=torch.float64))
        self._trace.arrays["rank_digest"][step] = trainer.strategy.gather(torch.tensor(parameters))
        self._trace.arrays["samples"][step] = trainer.strategy.sum(torch.tensor(samples))
        values = {"loss": float(total), "lr": trainer.optimizer.param_groups[0]["lr"]}
        recorder.scalars(step, values)
        return float(total)

    def _record_gradients(self, step: int, model: nn.Module) -> None:
        gradients = ((name, parameter.grad) for name, parameter in model.named_parameters())
        self._recorder.record("gradient", step, gradients)
        each = self._trace.arrays["gradient/norm"][step]
        self._recorder.scalars(step, {"gradient_norm": float(torch.linalg.vector_norm(each))})

    def _start_window(self, step: int) -> None:
        """Start from the reference's state, so that rounding can't grow over more than one window."""
        trainer, layout = self._trainer, self._trace.layout
        folder = self._starts / f"step-{step:06d}"
        if step > 0 and not self._is_reference:
            checkpoints.load(folder, trainer.plain, trainer.optimizer)
        if self._twin:
            perturb(
                trainer.plain,
                layout.unit_roundoff,
                seed=hash((self._spec.train.seed, self._twin, step)) % 2**63,
            )
        if step > 0 and self._is_reference:
            checkpoints.save(folder, trainer.plain, trainer.optimizer, {}, {}, main=self._main)
        self._recorder.start(layout.starts.index(step), trainer.plain.named_parameters())

    def _keep(self, step: int) -> None:
        """Write a checkpoint every so often, and when asked to stop, at the same step on every rank."""
        trainer = self._trainer
        stop = bool(trainer.strategy.sum(torch.tensor(int(self._stop_requested()))))
        if step >= trainer.num_steps or not (stop or step % self._spec.train.checkpoint_every == 0):
            return
        scalars = {"step": step, "scaler": trainer.scaler.state_dict()}
        model, optimizer = trainer.plain, trainer.optimizer
        checkpoints.save(self._checkpoint, model, optimizer, self._trace.arrays, scalars, main=self._main)
        if stop:
            raise Interrupted(f"stopped after step {step} of {trainer.num_steps}")

    def _resume(self) -> int:
        """Load the last checkpoint; return the step to go on with."""
        if not (self._checkpoint / "state.json").exists():
            return 0
        trainer = self._trainer
        arrays, scalars = checkpoints.load(self._checkpoint, trainer.plain, trainer.optimizer)
        for name, array in arrays.items():
            self._trace.arrays[name].copy_(array)
        trainer.scaler.load_state_dict(scalars["scaler"])
        return int(scalars["step"])

    def _write(self) -> None:
        """Write weights, losses and, last, the trace."""
        weights = checkpoints.model_state(self._trainer.plain)
        if not self._main:
            return
        self._output.mkdir(parents=True, exist_ok=True)
        if not self._twin:
            save_file(weights, self._output / "weights.safetensors")
            write_text(self._output / "loss.csv", _loss_csv(self._trace))
        self._trace.save(self._output)
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def final_loss(self) -> float:
        """Return the mean loss of the last ten steps."""
        return float(Trace.load(self._output).arrays["loss"][-10:].mean())


def _hash(sample: int) -> int:
    """Spread a sample's index over 40 bits, so that sums tell one multiset of samples from another."""
    return hash((sample,)) % 2**40


def _loss_csv(trace: Trace) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", "loss"])
    writer.writerows(enumerate(trace.arrays["loss"].tolist()))
    return text.getvalue()
