"""Workloads that train otherwise when the batch is cut: what `trainparity check` is for."""

import torch
from torch import Tensor, nn

from examples.workload import Classifier
from trainparity.workloads import Batch


class BatchNorm(Classifier):
    """Normalises over whatever batch it is given."""

    def build_model(self, sample: Batch) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.AvgPool2d(4),
            nn.Flatten(),
            nn.Linear(32, 10),
        )


class Dropout(Classifier):
    """Drops at random."""

    def build_model(self, sample: Batch) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10))


class MeanLoss(Classifier):
    """Returns the mean where the sum is asked for."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return super().loss(model, batch) / len(batch["labels"])


class Waves(Classifier):
    """Has gradients that depend on the last digits that bf16 has."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return (1000 * model(batch["images"])).sin().square().sum()


class Coupled(Classifier):
    """Is 0.2 % apart when the batch is cut: less than bf16 rounds."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        scores = model(batch["images"])
        return nn.functional.cross_entropy(scores * (1 + 4e-5 * len(scores)), batch["labels"], reduction="sum")


class Barely(Classifier):
    """Is a few millionths apart when the batch is cut: within the margin of fp32."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        scores = model(batch["images"])
        return nn.functional.cross_entropy(scores * (1 + 1e-7 * len(scores)), batch["labels"], reduction="sum")


class Steep(Classifier):
    """So steep that fp32's rounding is amplified beyond any margin in a few steps."""

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=3.0)
