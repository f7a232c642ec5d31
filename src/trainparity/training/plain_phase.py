"""Training alone, without a trace: for learning curves, pictures and scores; resumable."""

import torch

from trainparity import checkpoints
from trainparity.records.base import write_csv
from trainparity.records.tensors import save as save_tensors
from trainparity.training.loop import Trainer
from trainparity.training.parity_phase import Progress
from trainparity.training.resuming import MakeResuming
from trainparity.training.spec import RunSpec


def train(spec: RunSpec, trainer: Trainer, resuming: MakeResuming, *, progress: Progress) -> list[float]:
    """Train all steps, from the last checkpoint if there is one; return each step's loss.

    Raises:
        Interrupted: a stop was requested; the next call resumes from there.
    """
    kept = resuming(trainer, spec.work / "checkpoints" / "plain")
    arrays, start = kept.load()
    losses: list[float] = arrays["loss"].tolist() if arrays else []
    batches = trainer.batches(start, trainer.num_steps, spec.configuration.loader)
    for step, micro_batches in enumerate(batches, start + 1):
        loss = trainer.step(step - 1, micro_batches)
        losses.append(float(trainer.strategy.sum(torch.tensor(float(loss), dtype=torch.float64))))
        progress(losses[-1])
        kept.keep(step, lambda: {"loss": torch.tensor(losses, dtype=torch.float64)})
    if trainer.execution.rank == 0:
        kept.remove()
    return losses


def write(spec: RunSpec, trainer: Trainer, losses: list[float]) -> None:
    """Write weights and losses as the run's state; every rank must call it."""
    weights = checkpoints.model_state(trainer.plain)
    if trainer.execution.rank == 0:
        output = spec.work / "state"
        output.mkdir(parents=True, exist_ok=True)
        save_tensors(weights, output / "weights.safetensors")
        write_csv(output / "loss.csv", ("step", "loss"), enumerate(losses))
