"""A workload to copy: everything that `trainparity check` and the pipeline need to know of a model.

trainparity check examples.workload:Classifier --against ddp:2 gradaccum:4 fsdp-offload compiled dp amp-bf16
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from trainparity.workloads import Batch, SampleRandomness, Section, Workload


class Options(Section):
    """What may be set from outside, as `--options '{width: 16}'`; a mistake in it is named."""

    width: int = 8
    noise: float = 0.1


class Classifier(Workload):
    """A small convolutional network of handwritten digits."""

    Options = Options
    options: Options

    def data(self) -> Batch:
        """Return the whole dataset: tensors [N, ...] by name."""
        digits = load_digits()
        return {
            "images": torch.from_numpy(digits.images).float()[:, None] / 16,
            "labels": torch.from_numpy(digits.target),
        }

    def build_model(self, sample: Batch) -> nn.Module:
        """Build the model; the random generator is seeded."""
        width = self.options.width
        return nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.SiLU(),
            nn.AvgPool2d(4),
            nn.Flatten(),
            nn.Linear(4 * width, 10),
        )

    def draw(self, batch: Batch, randomness: SampleRandomness) -> Batch:
        """Draw the noise that is added to each image: a function of seed, epoch and sample."""
        return {"noise": self.options.noise * randomness.normal(1, 8, 8)}

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the batch: the loop divides once, by the global count."""
        logits = model(batch["images"] + batch["noise"])
        return nn.functional.cross_entropy(logits, batch["labels"], reduction="sum")

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimizer."""
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
