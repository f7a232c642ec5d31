"""Faults of the forward pass: statistics, modes, random numbers, formats."""

from pathlib import Path

import torch
from torch import Tensor, nn

from trainparity.controls.catalogue.right import Accumulated, InBf16, SameMicroBatches
from trainparity.controls.loop import Ddp, Loop
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder


class LocalStatistics(Accumulated):
    """BatchNorm over each micro-batch."""


class LocalStatisticsOfRanks(Ddp):
    """BatchNorm over each rank's shard."""


class OtherMomentum(Loop):
    """BatchNorm with another momentum of its running statistics."""

    def build(self) -> nn.Module:
        model = super().build()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.2
        return model


class RunningStatisticsOfRanks(Ddp):
    """BatchNorm under DDP, compared with the same micro-batches: only the running statistics differ."""


class EvaluationMode(Loop):
    """Validation called model.eval(), and nobody called model.train()."""

    def seed_step(self, step: int) -> None:
        super().seed_step(step)
        if step == 2:
            self.model.eval()


class DropoutDrawnOtherwise(SameMicroBatches):
    """Dropout over micro-batches of other samples draws other masks."""


class SharedDropoutSeed(Ddp):
    """Every rank has the same seed, and so the same dropout masks."""

    def seed_step(self, step: int) -> None:
        torch.manual_seed(1000 * self.seed + 10 * step)


class OtherNoise(Loop):
    """Augmentation noise from a generator of the loop's own."""

    def record(self, folder: Path, twin: int) -> Recorder:
        return _by_index(self, folder, twin)

    def inputs(self, part: Tensor) -> Tensor:
        self.part = part
        return super().inputs(part) + 0.1 * torch.randn(self.images[part].shape)


class KnownNoise(Loop):
    """Noise that is a function of the sample: the reference of OtherNoise."""

    def record(self, folder: Path, twin: int) -> Recorder:
        return _by_index(self, folder, twin)

    def inputs(self, part: Tensor) -> Tensor:
        self.part = part
        noise = [torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(int(i))) for i in part]
        return super().inputs(part) + 0.1 * torch.stack(noise)


def _by_index(loop: OtherNoise | KnownNoise, folder: Path, twin: int) -> Recorder:
    return record(loop.model, loop.optimizer, folder, first=6, twin=twin, samples=lambda inputs, keywords: loop.part)


class HalfPrecision(InBf16):
    """The forward pass under bf16 autocast."""


class SoftmaxInTheModel(Accumulated):
    """A softmax at the model's end, before a loss that has its own."""

    def build(self) -> nn.Module:
        model = super().build()
        model.register_forward_hook(lambda module, inputs, logits: logits.softmax(1))
        return model


class ScaleTooHigh(Loop):
    """A loss scale that overflows: the scaler skips the step."""

    def __init__(self, model: str, seed: int) -> None:
        super().__init__(model, seed)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)

    def backward(self, loss: Tensor) -> None:
        super().backward(loss * 64)
