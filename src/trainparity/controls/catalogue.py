"""The catalogue: right loops, which must never be `different`, and wrong ones, each with the cause it must be given."""

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainparity.controls.loop import GLOBAL_BATCH, LIMIT, STEPS, Ddp, Fsdp, Loop
from trainparity.controls.models import MODELS, Transformer
from trainparity.parity.causes import Cause
from trainparity.parity.recorder import Recorder, record
from trainparity.parity.recording import ranks
from trainparity.strategies.data_parallel import CpuReplicas

PLAIN = ("mlp", "conv-groupnorm", "transformer")
"""Models whose training does not depend on how the batch is cut."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """A loop, what it is held against, and what must be said of it."""

    loop: type[Loop]
    cause: Cause | None = None
    """The cause that must be named; None if the loop is right."""
    models: tuple[str, ...] = PLAIN
    against: type[Loop] = Loop
    num_ranks: int = 1

    @property
    def name(self) -> str:
        """The class's name, as words."""
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in self.loop.__name__).lstrip("-")

    @property
    def what(self) -> str:
        """The class's docstring: how it comes about."""
        return (self.loop.__doc__ or "").strip().splitlines()[0]


# --- right ones -------------------------------------------------------------------------------------------------


class Itself(Loop):
    """The reference again."""


class Accumulated(Loop):
    """Two micro-batches."""

    accumulation_steps = 2


class AccumulatedByFour(Loop):
    """Four micro-batches."""

    accumulation_steps = 4


class Uneven(Loop):
    """Micro-batches of unequal size, divided by the global count."""

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        """Cut unevenly."""
        return shard[:11], shard[11:]


class Backwards(Loop):
    """Samples in another order within each batch."""

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        """Turn the batch round."""
        return (shard.flip(0),)


class Scaled(Loop):
    """A loss scale, a power of two, taken away again."""

    def __init__(self, model: str, seed: int) -> None:
        super().__init__(model, seed)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


class Compiled(Loop):
    """The model compiled."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Compile."""
        return cast(nn.Module, torch.compile(model))


class Replicas(Loop):
    """`nn.DataParallel`'s algorithm over two replicas on the CPU."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Scatter, run, gather."""
        return CpuReplicas(model, 2)

    def record(self, folder: Path, twin: int) -> Recorder:
        """Watch the model inside."""
        return record(self.plain, self.optimizer, folder, first=STEPS, twin=twin)


class DdpAccumulated(Ddp):
    """DDP with two micro-batches a rank."""

    accumulation_steps = 2


class FsdpAccumulated(Fsdp):
    """FSDP2 with two micro-batches a rank."""

    accumulation_steps = 2


class SameMicroBatches(Loop):
    """The shards of two ranks, one after the other: what DDP is the same training as, BatchNorm or not."""

    accumulation_steps = 2

    def micro_batches(self, shard: Tensor) -> Sequence[Tensor]:
        """Cut as ranks do."""
        return shard[0::2], shard[1::2]


# --- wrong ones: the loss ---------------------------------------------------------------------------------------


class Undivided(Accumulated):
    """Each micro-batch's mean, not divided by their number."""

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        """Return the micro-batch's mean."""
        return self.losses(part).mean()


class MeanOfMeans(Uneven):
    """The mean of the means of uneven micro-batches."""

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        """Return the micro-batch's mean over their number."""
        return self.losses(part).mean() / parts


class SummedOverRanks(Loop):
    """Gradients all-reduced by hand, summed and not averaged."""

    def reduce(self) -> None:
        """Sum."""
        for parameter in self.plain.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)


class UnevenRanks(Ddp):
    """Each rank's own mean over shards of unequal size, averaged by DDP."""

    def shard(self, batch: Tensor) -> Tensor:
        """Cut unevenly."""
        return (batch[:11], batch[11:])[ranks.rank()]

    def loss(self, part: Tensor, global_count: int, parts: int) -> Tensor:
        """Return the rank's mean."""
        return self.losses(part).mean()


# --- wrong ones: samples and the forward pass -------------------------------------------------------------------


class SampleLeftOut(Loop):
    """One sample of the third step is lost, and the count is right."""

    def global_batch(self, step: int) -> Tensor:
        """Drop one."""
        batch = super().global_batch(step)
        return batch[1:] if step == 2 else batch


class SampleTwice(Loop):
    """A sampler that pads a batch with a sample it has already."""

    def global_batch(self, step: int) -> Tensor:
        """Repeat one in place of another."""
        batch = super().global_batch(step)
        return torch.cat([batch[:-1], batch[:1]])


class EpochNotSet(Loop):
    """Shuffled with another seed: set_epoch was not called."""

    def global_batch(self, step: int) -> Tensor:
        """Shuffle otherwise."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        return torch.randperm(len(self.images), generator=generator)[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]


class NotSharded(Ddp):
    """No DistributedSampler: every rank sees rank 0's samples."""

    def shard(self, batch: Tensor) -> Tensor:
        """Take rank 0's share."""
        return batch[:: ranks.world_size()]


class PaddedShards(Ddp):
    """A last batch that does not divide among the ranks, padded with a sample seen already."""

    def global_batch(self, step: int) -> Tensor:
        """Leave an odd number."""
        return super().global_batch(step)[: GLOBAL_BATCH - 1]

    def shard(self, batch: Tensor) -> Tensor:
        """Pad to an even one, as DistributedSampler does."""
        return super().shard(torch.cat([batch, batch[:1]]))


class OddBatch(Loop):
    """A batch that does not divide among the ranks: what PaddedShards is held against."""

    def global_batch(self, step: int) -> Tensor:
        """Leave an odd number."""
        return super().global_batch(step)[: GLOBAL_BATCH - 1]


class UnevenShards(Ddp):
    """A batch that does not divide among the ranks, not padded, divided by the global count."""

    def global_batch(self, step: int) -> Tensor:
        """Leave an odd number."""
        return super().global_batch(step)[: GLOBAL_BATCH - 1]


class LocalStatistics(Accumulated):
    """BatchNorm over each micro-batch."""


class LocalStatisticsOfRanks(Ddp):
    """BatchNorm over each rank's shard."""


class OtherMomentum(Loop):
    """BatchNorm with another momentum of its running statistics."""

    def build(self) -> nn.Module:
        """Change the momentum."""
        model = super().build()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.2
        return model


class RunningStatisticsOfRanks(Ddp):
    """BatchNorm under DDP, held against the same micro-batches: only the running statistics differ."""


class EvaluationMode(Loop):
    """Validation called model.eval(), and nobody called model.train()."""

    def seed_step(self, step: int) -> None:
        """Validate after the second step."""
        super().seed_step(step)
        if step == 2:
            self.model.eval()


class DropoutDrawnOtherwise(SameMicroBatches):
    """Dropout over micro-batches of other samples draws other masks."""


class SharedDropoutSeed(Ddp):
    """Every rank has the same seed, and so the same dropout masks."""

    def seed_step(self, step: int) -> None:
        """Seed all ranks alike."""
        torch.manual_seed(1000 * self.seed + 10 * step)


class OtherNoise(Loop):
    """Augmentation noise from a generator of the loop's own."""

    def record(self, folder: Path, twin: int) -> Recorder:
        """Know samples by their index."""
        return _by_index(self, folder, twin)

    def inputs(self, part: Tensor) -> Tensor:
        """Add noise."""
        self.part = part
        return super().inputs(part) + 0.1 * torch.randn(self.images[part].shape)


class KnownNoise(Loop):
    """Noise that belongs to the sample: what OtherNoise is held against."""

    def record(self, folder: Path, twin: int) -> Recorder:
        """Know samples by their index."""
        return _by_index(self, folder, twin)

    def inputs(self, part: Tensor) -> Tensor:
        """Add noise drawn for each sample."""
        self.part = part
        noise = [torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(int(i))) for i in part]
        return super().inputs(part) + 0.1 * torch.stack(noise)


def _by_index(loop: OtherNoise | KnownNoise, folder: Path, twin: int) -> Recorder:
    return record(loop.model, loop.optimizer, folder, first=6, twin=twin, samples=lambda inputs, keywords: loop.part)


class HalfPrecision(Loop):
    """The forward pass under bf16 autocast."""

    def losses(self, part: Tensor) -> Tensor:
        """Compute in bf16."""
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(self.inputs(part))
        return nn.functional.cross_entropy(logits.float(), self.labels[part], reduction="none")


class ScaleTooHigh(Loop):
    """A loss scale that overflows: the scaler skips the step."""

    def __init__(self, model: str, seed: int) -> None:
        super().__init__(model, seed)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)

    def backward(self, loss: Tensor) -> None:
        """Overflow at once."""
        super().backward(loss * 64)


# --- wrong ones: between backward and the update ----------------------------------------------------------------


class NeverZeroed(Loop):
    """zero_grad forgotten."""

    def zero_grad(self, step: int) -> None:
        """Forget it."""


class ZeroedTooEarly(Accumulated):
    """zero_grad before every micro-batch."""

    def after_backward(self, number: int, count: int) -> None:
        """Drop all but the last."""
        if number < count - 1:
            self.optimizer.zero_grad()


class ClippedEachMicroBatch(Accumulated):
    """Clipping inside the accumulation loop."""

    def after_backward(self, number: int, count: int) -> None:
        """Clip too early."""
        self.clip()

    def reduce(self) -> None:
        """Clip no more."""
        self.clip_norm = None

    def zero_grad(self, step: int) -> None:
        """Begin again."""
        super().zero_grad(step)
        self.clip_norm = LIMIT


class NotClipped(Loop):
    """Clipping forgotten."""

    clip_norm = None


class OtherLimit(Loop):
    """Clipping at another norm."""

    clip_norm = LIMIT / 2


class LocalNorms(Fsdp):
    """Each rank clips its shards by their own norm."""

    def clip(self) -> None:
        """Clip what lies here."""
        local = [parameter.grad.to_local() for parameter in self.plain.parameters() if parameter.grad is not None]  # type: ignore[attr-defined]
        norm = torch.linalg.vector_norm(torch.stack([part.norm() for part in local]))
        for part in local:
            part.mul_((LIMIT / (norm + 1e-6)).clamp(max=1.0))


class ClippedWhileScaled(Scaled):
    """Clipping before unscale_."""

    def clip(self) -> None:
        """Clip scaled gradients."""
        nn.utils.clip_grad_norm_(self.plain.parameters(), LIMIT)


class NotUnscaled(Scaled):
    """optimizer.step() instead of scaler.step(optimizer)."""

    def clip(self) -> None:
        """Leave the scale in."""

    def update(self) -> None:
        """Step past the scaler."""
        self.optimizer.step()


class Unclipped(Loop):
    """No clipping, meant so: what NotUnscaled is held against."""

    clip_norm = None


# --- wrong ones: the update -------------------------------------------------------------------------------------


class LinearlyScaledRate(Loop):
    """The learning rate scaled by the number of ranks though the global batch is the same."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Double it."""
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["lr"] *= 2
        return optimizer


class SteppedPerMicroBatch(Accumulated):
    """scheduler.step() in the accumulation loop."""

    def after_backward(self, number: int, count: int) -> None:
        """Step after each but the last, after which the loop does."""
        if number < count - 1:
            self.scheduler.step()


class SteppedPerRank(Ddp):
    """The schedule stepped once for each rank, as Accelerate's wrapper does unless told otherwise."""

    def update(self) -> None:
        """Step once more."""
        super().update()
        self.scheduler.step()


class OtherWeightDecay(Loop):
    """Another weight decay."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Turn it off."""
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0
        return optimizer


class StateLost(Loop):
    """A resume that restored weights and not the optimizer."""

    def zero_grad(self, step: int) -> None:
        """Forget the moments before the fourth step."""
        super().zero_grad(step)
        if step == 3:
            self.optimizer.state.clear()


class OtherOptimizer(Loop):
    """Adam where AdamW was meant, NAG where momentum was."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Choose a near relative."""
        if self.seed % 2:
            return torch.optim.Adam(self.plain.parameters(), lr=1e-3, weight_decay=0.01)
        return torch.optim.SGD(self.plain.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)


class OtherSeed(Loop):
    """Initial weights from another seed."""

    def build(self) -> nn.Module:
        """Seed otherwise."""
        torch.manual_seed(self.seed + 1)
        return MODELS[self.name]()


class HeadNotLoaded(Loop):
    """A checkpoint whose last layer was not loaded: strict=False."""

    def build(self) -> nn.Module:
        """Draw the last parameter again."""
        model = super().build()
        with torch.no_grad():
            list(model.parameters())[-1].add_(torch.randn(10) if self.name != "transformer" else torch.randn(10, 16))
        return model


class NotTied(Loop):
    """A readout that shared its weights no more after loading."""

    def build(self) -> nn.Module:
        """Copy what was shared."""
        model = super().build()
        assert isinstance(model, Transformer)
        model.readout.weight = nn.Parameter(model.classes.weight.detach().clone())
        return model


class Frozen(Loop):
    """requires_grad left off on one layer."""

    def build(self) -> nn.Module:
        """Freeze the first parameter."""
        model = super().build()
        next(model.parameters()).requires_grad_(False)
        return model


class Detached(Loop):
    """A parameter whose gradient is dropped."""

    def reduce(self) -> None:
        """Drop the first."""
        next(self.plain.parameters()).grad = None


class HeadNotInOptimizer(Loop):
    """A layer added after the optimizer was made."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Leave the last parameter out."""
        optimizer = super().make_optimizer()
        optimizer.param_groups[0]["params"].pop()
        return optimizer


class StaleOptimizer(Fsdp):
    """The optimizer made before fully_shard, over parameters that are no more."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Make the optimizer first."""
        self.stale = super().make_optimizer()
        return super().wrap(model)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the stale one."""
        return self.stale


# --- wrong ones: ranks ------------------------------------------------------------------------------------------


class WrapperBypassed(Ddp):
    """The forward pass calls the module inside DDP: nothing is reduced."""

    def losses(self, part: Tensor) -> Tensor:
        """Call the plain model."""
        logits = self.plain(self.inputs(part))
        return nn.functional.cross_entropy(logits, self.labels[part], reduction="none")


class WrongMicroBatchSynchronised(DdpAccumulated):
    """no_sync around the last micro-batch instead of the first."""

    def synchronising(self, number: int, count: int) -> AbstractContextManager[object]:
        """Reduce in the first."""
        assert isinstance(self.model, nn.parallel.DistributedDataParallel)
        return contextlib.nullcontext() if number == 0 else self.model.no_sync()


class PartlyReduced(Loop):
    """Gradients all-reduced by hand, one parameter forgotten."""

    def reduce(self) -> None:
        """Average all but the last."""
        for parameter in list(self.plain.parameters())[:-1]:
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class UsedOnOneRank(Loop):
    """A parameter that takes part on rank 0 only, and a hand-made reduction that skips what is missing elsewhere."""

    def reduce(self) -> None:
        """Average what every rank has."""
        parameters = list(self.plain.parameters())
        if ranks.rank():
            parameters[0].grad = None
        for parameter in parameters[1:]:
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def _right(loop: type[Loop], **options: object) -> Control:
    return Control(loop=loop, **options)  # type: ignore[arg-type]


RIGHT = [
    _right(Itself, models=(*PLAIN, "conv-batchnorm", "mlp-dropout")),
    _right(Backwards, models=(*PLAIN, "conv-batchnorm")),
    _right(Scaled, models=(*PLAIN, "conv-batchnorm")),
    *(_right(loop) for loop in (Accumulated, AccumulatedByFour, Uneven, Replicas, Compiled)),
    *(_right(loop, num_ranks=2) for loop in (Ddp, DdpAccumulated, Fsdp, FsdpAccumulated)),
    _right(UnevenShards, against=OddBatch, num_ranks=2),
]
"""Never `different`."""

WRONG = [
    *(Control(loop=loop, cause="loss-normalisation") for loop in (Undivided, MeanOfMeans)),
    *(Control(loop=loop, cause="loss-normalisation", num_ranks=2) for loop in (SummedOverRanks, UnevenRanks)),
    *(Control(loop=loop, cause="samples") for loop in (SampleLeftOut, SampleTwice, EpochNotSet)),
    Control(loop=NotSharded, cause="samples", num_ranks=2),
    Control(loop=PaddedShards, cause="samples", num_ranks=2, against=OddBatch),
    Control(loop=LocalStatistics, cause="batchnorm-statistics", models=("conv-batchnorm",)),
    Control(loop=LocalStatisticsOfRanks, cause="batchnorm-statistics", models=("conv-batchnorm",), num_ranks=2),
    Control(loop=OtherMomentum, cause="buffers-only", models=("conv-batchnorm",)),
    Control(
        loop=RunningStatisticsOfRanks,
        cause="buffers-only",
        models=("conv-batchnorm",),
        against=SameMicroBatches,
        num_ranks=2,
    ),
    Control(loop=EvaluationMode, cause="eval-mode", models=("conv-batchnorm", "mlp-dropout")),
    Control(loop=DropoutDrawnOtherwise, cause="randomness", models=("mlp-dropout",)),
    Control(loop=SharedDropoutSeed, cause="randomness", models=("mlp-dropout",), num_ranks=2),
    Control(loop=OtherNoise, cause="randomness", against=KnownNoise),
    Control(loop=HalfPrecision, cause="precision"),
    Control(loop=ScaleTooHigh, cause="precision"),
    *(Control(loop=loop, cause="gradients-not-zeroed") for loop in (NeverZeroed, ZeroedTooEarly)),
    *(Control(loop=loop, cause="clipping") for loop in (ClippedEachMicroBatch, NotClipped, OtherLimit)),
    Control(loop=LocalNorms, cause="clipping", num_ranks=2),
    Control(loop=ClippedWhileScaled, cause="grad-scaler"),
    Control(loop=NotUnscaled, cause="grad-scaler", against=Unclipped),
    Control(loop=LinearlyScaledRate, cause="learning-rate"),
    Control(loop=SteppedPerMicroBatch, cause="schedule"),
    Control(loop=SteppedPerRank, cause="schedule", num_ranks=2),
    *(Control(loop=loop, cause="optimizer-state") for loop in (OtherWeightDecay, StateLost, OtherOptimizer)),
    *(Control(loop=loop, cause="weights-not-loaded") for loop in (OtherSeed, HeadNotLoaded)),
    Control(loop=NotTied, cause="weights-not-loaded", models=("transformer",)),
    *(Control(loop=loop, cause="frozen-parameter") for loop in (Frozen, Detached)),
    Control(loop=HeadNotInOptimizer, cause="parameters-not-updated"),
    Control(loop=StaleOptimizer, cause="parameters-not-updated", num_ranks=2),
    *(
        Control(loop=loop, cause="ranks-disagree", num_ranks=2)
        for loop in (WrapperBypassed, WrongMicroBatchSynchronised, PartlyReduced, UsedOnOneRank)
    ),
]
"""Always `different`, for this cause."""
