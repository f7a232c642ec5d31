"""A GAN in Lightning's manual optimisation: two optimizers, each recorded with what it updates, judged together.

python examples/lightning_gan.py runs/gan
for i in 1 2 3; do TRAINPARITY_TWIN=$i python examples/lightning_gan.py runs/gan; done
torchrun --nproc-per-node 2 examples/lightning_gan.py runs/gan-ddp
trainparity compare runs/gan runs/gan-ddp
"""

import os
import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainparity.lightning import RecordCallback


class Gan(lightning.LightningModule):
    """Makes digits from noise, and tells them from real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())
        self.discriminator = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """Update the discriminator, and then the generator."""
        images, noise = batch
        of_generator, of_discriminator = self.optimizers()
        fakes = self.generator(noise)

        of_discriminator.zero_grad()
        real, made = self.discriminator(images), self.discriminator(fakes.detach())
        self.manual_backward(bce(real, torch.ones_like(real)) + bce(made, torch.zeros_like(made)))
        of_discriminator.step()

        of_generator.zero_grad()
        judged = self.discriminator(fakes)
        self.manual_backward(bce(judged, torch.ones_like(judged)))
        of_generator.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Train both with Adam, as DCGAN does."""
        return [torch.optim.Adam(p.parameters(), lr=2e-4, betas=(0.5, 0.999)) for p in self.children()]


def main(folder: str) -> None:
    """Train one pass over some digits; the global batch is 32 on any number of processes."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    lightning.seed_everything(0, verbose=False)
    # Each image has noise of its own, so that it is the same on whichever rank.
    images = torch.from_numpy(load_digits().data[:640]).float() / 16
    data = TensorDataset(images, torch.randn(len(images), 16))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=world_size,
        strategy="ddp_find_unused_parameters_true" if world_size > 1 else "auto",
        max_epochs=1,
        callbacks=[RecordCallback(folder)],
        use_distributed_sampler=False,  # the Trainer's own shuffles, though the loader does not
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    sampler = DistributedSampler(data, world_size, int(os.environ.get("RANK", "0")), shuffle=False)
    trainer.fit(Gan(), DataLoader(data, 32 // world_size, sampler=sampler))


if __name__ == "__main__":
    main(sys.argv[1])
