"""A Lightning Trainer with the Recorder in it, as a callback.

python examples/lightning_loop.py runs/plain
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/lightning_loop.py runs/plain; done
torchrun --nproc-per-node 2 examples/lightning_loop.py runs/ddp
trainparity compare runs/plain runs/ddp
"""

import os
import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainparity.lightning import RecordCallback


class Classifier(lightning.LightningModule):
    """A small network of the digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """Return the mean loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Train with AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(folder: str, accumulation_steps: int = 1) -> None:
    """Train one pass over some digits; the global batch is 32 on any number of processes."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    digits = load_digits()
    data = TensorDataset(torch.from_numpy(digits.data[:640]).float() / 16, torch.from_numpy(digits.target[:640]).long())
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=world_size,
        strategy="ddp" if world_size > 1 else "auto",
        max_epochs=1,
        accumulate_grad_batches=accumulation_steps,
        gradient_clip_val=1.0,
        callbacks=[RecordCallback(folder)],
        use_distributed_sampler=False,  # the Trainer's own shuffles, though the loader does not
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    sampler = DistributedSampler(data, world_size, int(os.environ.get("RANK", "0")), shuffle=False)
    trainer.fit(Classifier(), DataLoader(data, 32 // world_size // accumulation_steps, sampler=sampler))


if __name__ == "__main__":
    main(sys.argv[1], *(int(value) for value in sys.argv[2:]))
