"""The traced phase: deterministic, in windows, resumable; its result is the run's `state`."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from trainparity import checkpoints
from trainparity.parity.recording.forward import STAND_IN
from trainparity.parity.recording.perturb import perturb
from trainparity.parity.recording.probe import Probe
from trainparity.parity.recording.trace import Layout, StepArrays, Trace
from trainparity.records.base import write_csv
from trainparity.training.loop import MicroBatch, Trainer
from trainparity.training.precision import UNIT_ROUNDOFF, deterministic
from trainparity.training.resuming import Resuming
from trainparity.training.spec import RunSpec

Progress = Callable[[float], None]
"""Called after each step with its loss."""


class ParityPhase:
    """Trains with the trace on: a reference, a twin of one, or a run that follows a reference."""

    def __init__(self, spec: RunSpec, trainer: Trainer, *, twin: int, stop_requested: Callable[[], bool]) -> None:
        self._spec, self._trainer, self._twin = spec, trainer, twin
        self._main = trainer.execution.rank == 0
        self._output = spec.work / "state" / (f"twins/{twin}" if twin else "")
        checkpoint = spec.work / "checkpoints" / (f"twin-{twin}" if twin else "run")
        self._resuming = Resuming(trainer, checkpoint, stop_requested=stop_requested)
        self._is_reference = spec.reference is None and not twin
        self._window = min(spec.parity.window, trainer.num_steps)
        self._probe = Probe(trainer.plain, trainer.optimizer, sketch_size=spec.parity.sketch_size)
        self._arrays = StepArrays()

    @property
    def _starts(self) -> Path:
        """Where the reference keeps the states that windows start from."""
        return (self._spec.reference or self._spec.work / "state") / "windows"

    def _layout(self) -> Layout:
        trainer = self._trainer
        configuration = trainer.configuration.model_dump(mode="json", exclude={"loader", "reference"})
        return Layout(
            steps=list(range(trainer.num_steps)),
            window=self._window,
            precision=trainer.precision,
            unit_roundoff=UNIT_ROUNDOFF[trainer.precision],
            sketch_size=self._spec.parity.sketch_size,
            twin=self._twin,
            settings=configuration | {"samples": "identity"},
            **self._probe.facts(),
        )

    @property
    def is_whole(self) -> bool:
        """Whether it is one training from its start to its end, and no window starts from the reference's state."""
        return self._is_reference or self._window >= self._trainer.num_steps

    def run(self, progress: Progress) -> bool:
        """Train all steps, from the last checkpoint if there is one, and write trace and weights.

        Returns:
            False if all that was there already: then the trainer has not trained.

        Raises:
            Interrupted: a stop was requested; the next call goes on from there.
        """
        try:
            if (self._output / "trace.json").exists():  # written last
                return False
            self._run(progress)
            return True
        finally:
            self._probe.close()

    def _run(self, progress: Progress) -> None:
        with deterministic():
            arrays, start = self._resuming.load()
            self._arrays.restore(arrays)
            batches = self._trainer.batches(start, self._trainer.num_steps, self._spec.configuration.loader)
            for step, micro_batches in enumerate(batches, start):
                if step % self._window == 0:
                    self._start_window(step)
                progress(self._step(step, micro_batches))
                self._resuming.keep(step + 1, self._arrays.stacked)
        self._write()

    def _step(self, step: int, micro_batches: list[MicroBatch]) -> float:
        trainer = self._trainer
        self._probe.begin([_samples(micro_batch) for micro_batch in micro_batches])
        loss = trainer.step(step, micro_batches)
        values = self._probe.end()
        total = trainer.strategy.sum(torch.tensor(float(loss), dtype=torch.float64))
        self._arrays.append(values | {"loss": total})
        return float(total)

    def _start_window(self, step: int) -> None:
        """Start from the reference's state, so that rounding can't grow over more than one window."""
        trainer = self._trainer
        folder = self._starts / f"step-{step:06d}"
        if step > 0 and not self._is_reference:
            checkpoints.load(folder, trainer.plain, trainer.optimizer, keep_settings=True)
        if self._twin:
            seed = hash((self._spec.train.seed, self._twin, step)) % 2**63
            perturb(trainer.plain, UNIT_ROUNDOFF[trainer.precision], seed)
        if step > 0 and self._is_reference:
            checkpoints.save(folder, trainer.plain, trainer.optimizer, {}, {}, main=self._main)
        self._probe.moved()

    def _write(self) -> None:
        """Write weights, losses and, last, the trace."""
        weights = checkpoints.model_state(self._trainer.plain)
        if not self._main:
            return
        self._output.mkdir(parents=True, exist_ok=True)
        if not self._twin:
            save_file(weights, self._output / "weights.safetensors")
            losses = enumerate(self._arrays.stacked()["loss"].tolist())
            write_csv(self._output / "loss.csv", ("step", "loss"), losses)
        Trace(self._layout(), self._arrays.stacked()).save(self._output)
        self._resuming.remove()

    def draws_random_numbers(self) -> bool:
        """Tell whether the model drew random numbers in its forward passes, as dropout does."""
        return bool(Trace.load(self._output).arrays["rank/drew"].any())

    def final_loss(self) -> float:
        """Return the mean loss of the last ten steps."""
        return float(Trace.load(self._output).arrays["loss"][-10:].mean())


def _samples(micro_batch: MicroBatch) -> Tensor:
    """Return the identities of a micro-batch's samples; a stand-in on a rank without samples has none."""
    samples = micro_batch.batch["samples"]
    return samples if micro_batch.counted else torch.full_like(samples, STAND_IN)
