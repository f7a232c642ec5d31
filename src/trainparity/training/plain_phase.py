"""Training alone, without a trace: for learning curves and pictures; resumable."""

import shutil
from collections.abc import Callable

import torch
from safetensors.torch import save_file

from trainparity import checkpoints
from trainparity.records import write_csv
from trainparity.training.loop import Trainer
from trainparity.training.parity_phase import Interrupted, Progress
from trainparity.training.spec import RunSpec


def train(spec: RunSpec, trainer: Trainer, *, stop_requested: Callable[[], bool], progress: Progress) -> float:
    """Train all steps, from the last checkpoint if there is one; write weights and losses.

    Returns:
        The mean loss of the last ten steps.

    Raises:
        Interrupted: a stop was requested; the next call goes on from there.
    """
    main, output, checkpoint = trainer.execution.rank == 0, spec.work / "state", spec.work / "checkpoints" / "plain"
    losses: list[float] = []
    start = 0
    if (checkpoint / "state.json").exists():
        arrays, scalars = checkpoints.load(checkpoint, trainer.plain, trainer.optimizer)
        trainer.scaler.load_state_dict(scalars["scaler"])
        losses, start = arrays["loss"].tolist(), int(scalars["step"])
    batches = trainer.batches(start, trainer.num_steps, spec.configuration.loader)
    for step, micro_batches in enumerate(batches, start + 1):
        loss = trainer.step(step - 1, micro_batches)
        losses.append(float(trainer.strategy.sum(torch.tensor(float(loss), dtype=torch.float64))))
        progress(losses[-1])
        stop = bool(trainer.strategy.sum(torch.tensor(int(stop_requested()))))
        if step < trainer.num_steps and (stop or step % spec.train.checkpoint_every == 0):
            arrays = {"loss": torch.tensor(losses, dtype=torch.float64)}
            scalars = {"step": step, "scaler": trainer.scaler.state_dict()}
            checkpoints.save(checkpoint, trainer.plain, trainer.optimizer, arrays, scalars, main=main)
            if stop:
                raise Interrupted(f"stopped after step {step} of {trainer.num_steps}")
    weights = checkpoints.model_state(trainer.plain)
    if main:
        output.mkdir(parents=True, exist_ok=True)
        save_file(weights, output / "weights.safetensors")
        write_csv(output / "loss.csv", ("step", "loss"), enumerate(losses))
        shutil.rmtree(checkpoint, ignore_errors=True)
    return sum(losses[-10:]) / len(losses[-10:])
