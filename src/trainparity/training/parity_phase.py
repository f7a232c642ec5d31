"""The traced phase: deterministic, in windows, resumable; its result is the run's `state`."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainparity import checkpoints
from trainparity.parity.recording.formats import UNIT_ROUNDOFF, NumberFormat
from trainparity.parity.recording.session import Plan, Session
from trainparity.parity.recording.signs import STAND_IN
from trainparity.parity.recording.trace import Trace
from trainparity.parity.recording.watch import StepWatch
from trainparity.parity.recording.windows import WINDOWS
from trainparity.records.base import write_csv
from trainparity.records.tensors import save as save_tensors
from trainparity.training.loop import Trainer
from trainparity.training.micro_batches import MicroBatch
from trainparity.training.precision import deterministic
from trainparity.training.resuming import MakeResuming
from trainparity.training.spec import RunSpec

Progress = Callable[[float], None]
"""Called after each step with its loss."""


class ParityPhase:
    """Trains with the trace on: a reference, a twin of one, or a run that follows a reference."""

    def __init__(self, spec: RunSpec, trainer: Trainer, *, twin: int, resuming: MakeResuming) -> None:
        self._spec, self._trainer, self._twin = spec, trainer, twin
        self._main = trainer.execution.rank == 0
        self._output = spec.work / "state" / (f"twins/{twin}" if twin else "")
        checkpoint = spec.work / "checkpoints" / (f"twin-{twin}" if twin else "run")
        self._resuming = resuming(trainer, checkpoint)
        self._is_reference = spec.reference is None and not twin
        self._window = min(spec.parity.window, trainer.num_steps)
        windows = (spec.reference or spec.work / "state") / WINDOWS  # the reference keeps what the others start from
        plan = Plan(
            window=self._window,
            keep=windows if self._is_reference else None,
            follow=None if self._is_reference else windows,
            twin=twin,
            seed=spec.train.seed,
            computes=NumberFormat(trainer.precision, UNIT_ROUNDOFF[trainer.precision]),
        )
        watch = StepWatch(trainer.plain, trainer.optimizer, sketch_size=spec.parity.sketch_size)
        self._session = Session(watch, plan)

    @property
    def is_whole(self) -> bool:
        """Whether it is one training from its start to its end, and no window starts from the reference's state."""
        return self._is_reference or self._window >= self._trainer.num_steps

    def run(self, progress: Progress) -> bool:
        """Train all steps, from the last checkpoint if there is one, and write trace and weights.

        Returns:
            False if all that was there already: then the trainer has not trained.

        Raises:
            Interrupted: a stop was requested; the next call resumes from there.
        """
        try:
            if (self._output / "trace.json").exists():  # written last
                return False
            self._run(progress)
            return True
        finally:
            self._session.close()

    def _run(self, progress: Progress) -> None:
        with deterministic():
            arrays, start = self._resuming.load()
            self._session.resume(arrays, start)
            batches = self._trainer.batches(start, self._trainer.num_steps, self._spec.configuration.loader)
            for step, micro_batches in enumerate(batches, start):
                progress(self._step(step, micro_batches))
                self._resuming.keep(step + 1, self._session.stacked)
        self._write()

    def _step(self, step: int, micro_batches: list[MicroBatch]) -> float:
        trainer = self._trainer
        self._session.start(step, [_samples(micro_batch) for micro_batch in micro_batches])
        loss = float(trainer.step(step, micro_batches))
        total = self._session.finish(lambda: trainer.strategy.sum(torch.tensor(loss, dtype=torch.float64)))
        assert total is not None  # all steps are traced
        return float(total)

    def _write(self) -> None:
        """Write weights, losses and, last, the trace."""
        weights = checkpoints.model_state(self._trainer.plain)
        if not self._main:
            return
        configuration = self._trainer.configuration.model_dump(mode="json", exclude={"loader", "reference"})
        trace = self._session.trace(configuration | {"samples": "identity"})
        assert trace is not None
        self._output.mkdir(parents=True, exist_ok=True)
        if not self._twin:
            save_tensors(weights, self._output / "weights.safetensors")
            write_csv(self._output / "loss.csv", ("step", "loss"), enumerate(trace.arrays["loss"].tolist()))
        trace.save(self._output)
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
