"""What a trained model scores on the samples that were held out of its training."""

import torch
from torch import Tensor

from trainparity.records import Evaluation
from trainparity.training.loop import Trainer
from trainparity.training.precision import autocast


def evaluate(trainer: Trainer) -> Evaluation | None:
    """Score the model on the last `train.holdout` samples; every rank must call it.

    Returns:
        Accuracy, and precision and recall averaged over the classes that occur; None if nothing is held out or the
        workload predicts no classes.
    """
    held_out = torch.arange(len(trainer.dataset) - trainer.train.holdout, len(trainer.dataset))
    parts = [_predicted(trainer, indices) for indices in torch.split(held_out, trainer.train.global_batch_size)]
    predicted = [part for part in parts if part is not None]
    if not predicted:
        return None
    return score(torch.cat(predicted), trainer.dataset.tensors["labels"][held_out])


def score(predicted: Tensor, labels: Tensor) -> Evaluation:
    """Compare predicted classes with the true ones, both int64 [N]."""
    classes = torch.unique(labels)
    hits = torch.stack([((predicted == c) & (labels == c)).sum() for c in classes]).double()
    times_predicted = torch.stack([(predicted == c).sum() for c in classes]).double()
    there = torch.stack([(labels == c).sum() for c in classes]).double()
    return Evaluation(
        samples=len(labels),
        accuracy=float((predicted == labels).double().mean()),
        precision=float((hits / times_predicted.clamp(min=1)).mean()),
        recall=float((hits / there).mean()),
    )


@torch.no_grad()
def _predicted(trainer: Trainer, indices: Tensor) -> Tensor | None:
    device = trainer.execution.device
    batch = {name: tensor.to(device) for name, tensor in trainer.dataset.batch(indices).items()}
    trainer.model.eval()
    try:
        with autocast(trainer.precision, device):
            scores = trainer.workload.predict(trainer.model, batch)
    finally:
        trainer.model.train()
    return None if scores is None else scores.argmax(1).cpu()
