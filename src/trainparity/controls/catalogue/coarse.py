"""Loops in coarse formats, right and wrong: autocast in bf16 and fp16, FSDP2's mixed precision, compiled models."""

from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainparity.controls.catalogue.gradient import ClippedWhileScaled, NotClipped
from trainparity.controls.catalogue.inputs import SampleLeftOut
from trainparity.controls.catalogue.loss import LabelsShifted, Undivided, UnevenRanks
from trainparity.controls.catalogue.right import Accumulated, InBf16, Scaled
from trainparity.controls.catalogue.update import LinearlyScaledRate, OtherWeightDecay
from trainparity.controls.loop import Fsdp


class CompiledInBf16(InBf16):
    """The model compiled, under bf16 autocast."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return cast(nn.Module, torch.compile(model))


class UndividedInBf16(Undivided, InBf16):
    """A loss that is not divided by the number of micro-batches, under bf16 autocast."""


class LabelsShiftedInBf16(LabelsShifted, InBf16):
    """Each sample is given its neighbour's label, under bf16 autocast."""


class SampleLeftOutInBf16(SampleLeftOut, InBf16):
    """A sample less, under bf16 autocast."""


class NotClippedInBf16(NotClipped, InBf16):
    """Clipping forgotten, under bf16 autocast."""


class LinearlyScaledRateInBf16(LinearlyScaledRate, InBf16):
    """Twice the learning rate, under bf16 autocast."""


class OtherWeightDecayInBf16(OtherWeightDecay, InBf16):
    """Another weight decay, under bf16 autocast."""


class InFp16(Scaled, InBf16):
    """The forward pass under fp16 autocast, with a loss scale: the reference of runs in that precision."""

    computed_in = torch.float16


class AccumulatedInFp16(Accumulated, InFp16):
    """Two micro-batches under fp16 autocast."""


class ClippedWhileScaledInFp16(ClippedWhileScaled, InFp16):
    """Clipping before the loss scale is taken away, under fp16 autocast."""


class InFsdpBf16(Fsdp):
    """FSDP2 that computes in bf16: on one rank the reference of several."""

    coarse, computed_in = True, torch.bfloat16

    def __init__(self, model: str, seed: int) -> None:
        self._alone = not dist.is_initialized()
        if self._alone:
            store = dist.HashStore()  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        super().__init__(model, seed)

    def run(self, folder: Path, twin: int = 0) -> None:
        super().run(folder, twin)
        if self._alone:
            dist.destroy_process_group()

    def logits(self, part: Tensor) -> Tensor:
        return super().logits(part).float()


class RanksInFsdpBf16(InFsdpBf16):
    """FSDP2 that computes in bf16, on two ranks."""


class AccumulatedInFsdpBf16(InFsdpBf16):
    """FSDP2 that computes in bf16, with two micro-batches a rank."""

    accumulation_steps = 2


class UnevenRanksInFsdpBf16(InFsdpBf16):
    """Each rank's own mean over shards of unequal size, averaged by FSDP2 that computes in bf16."""

    shard, loss = UnevenRanks.shard, UnevenRanks.loss


class NeverReducedInFsdpBf16(AccumulatedInFsdpBf16):
    """FSDP2 that computes in bf16 and is told to reduce no gradient before the update."""

    def zero_grad(self, step: int) -> None:
        super().zero_grad(step)
        self.model.set_requires_gradient_sync(False)  # type: ignore[operator]
