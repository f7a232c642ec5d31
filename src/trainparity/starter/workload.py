"""The training that is compared: put your own model, loss, data and optimizer here.

trainparity check workload:Classifier --against ddp:2 gradaccum:4 compiled
"""

import torch
from torch import Tensor, nn

from trainparity.workloads import Batch, SampleRandomness, Section, Workload


class Settings(Section):
    """What params.yaml may set as `workload.options`; a mistake there is named."""

    width: int = 32
    noise: float = 0.05


class Classifier(Workload):
    """Three arms of a spiral, told apart by a small network."""

    Options = Settings
    options: Settings

    def data(self) -> Batch:
        """Return the whole dataset: tensors [N, ...] by name."""
        labels = torch.arange(960) % 3
        radius = torch.linspace(0.1, 1, len(labels))
        angle = 5 * radius + labels * (2 * torch.pi / 3)
        return {"points": torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), "labels": labels}

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the model; the random generator is seeded, and `sample` is a batch of one."""
        width = self.options.width
        return nn.Sequential(nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3))

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Draw the noise of each point: a function of seed, epoch and sample, however the batch is cut."""
        return {"noise": self.options.noise * randomness.normal(2)}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the batch: the loop divides once, by the global count."""
        logits = model(batch["points"] + batch["noise"])
        return nn.functional.cross_entropy(logits, batch["labels"], reduction="sum")
