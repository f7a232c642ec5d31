"""What a trained model scores on the samples that were held out of its training."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainparity.data.prepared import Prepared
from trainparity.params import Train
from trainparity.records.evaluation import Evaluation
from trainparity.training.loop import Trainer
from trainparity.training.precision import autocast
from trainparity.workloads import Workload
from trainparity.workloads.checked import Checked, WorkloadError


def predicts(workload: Workload, dataset: Prepared, train: Train) -> bool:
    """Tell whether there is anything to score: samples held out, and a workload that predicts classes.

    Raises:
        WorkloadError: there are no true classes to compare with.
    """
    if not train.holdout or not Checked(workload).predicts:
        return False
    labels = dataset.tensors.get("labels")
    if labels is None or labels.ndim != 1 or labels.is_floating_point():
        raise WorkloadError(
            f"`predict` of {type(workload).__name__} is scored by the dataset's tensor `labels`, integers [N], "
            "which is not there: give it that name, or set train.holdout to 0"
        )
    return True


def evaluate(trainer: Trainer, progress: Callable[[], None] = lambda: None) -> Evaluation:
    """Return accuracy, and precision and recall averaged over the classes that occur, on the last `train.holdout`
    samples; every rank must call it. `progress` is called after each batch.
    """
    held_out = torch.arange(len(trainer.dataset) - trainer.train.holdout, len(trainer.dataset))
    parts = []
    for indices in torch.split(held_out, trainer.train.global_batch_size):
        parts.append(_predicted(trainer, indices))
        progress()
    return score(torch.cat(parts), trainer.dataset.tensors["labels"][held_out])


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
def _predicted(trainer: Trainer, indices: Tensor) -> Tensor:
    device = trainer.execution.device
    batch = {name: tensor.to(device) for name, tensor in trainer.dataset.batch(indices).items()}
    trainer.model.eval()
    try:
        # Eagerly: for one pass over few samples a graph of its own is not worth its compilation.
        with autocast(trainer.precision, device), torch.compiler.set_stance("force_eager"):
            scores = trainer.workload.predict(trainer.model, batch)
    finally:
        trainer.model.train()
    return scores.argmax(1).cpu()
